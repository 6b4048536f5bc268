"""How does a run go over from gradients to training apart, and back? At a step's border, on all ranks alike.

`switch.Going` is the synchroniser, `crossing` goes over; `gauge` tells what rounds cost.
"""
