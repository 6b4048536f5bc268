"""How good is the model after a run, for the bits it sent? Simulated workers in one process, on three tasks.

A coder (`coder.py`) says what messages decode to and how many bits they have, a scheme (`scheme.py`) how it is used;
`simulate.py` is one run, `sweep.py` all of them, `summary.py` the result.
"""
