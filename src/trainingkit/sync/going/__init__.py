"""How does a run go over from gradients to training apart, and back? At a step's border, on all ranks alike.

`switch.Going` is the synchroniser; `moments` makes one optimizer of several, `gauge` tells what rounds cost.
"""
