"""MuLoCo: Therien et al., "MuLoCo: Muon is a practical inner optimizer for DiLoCo", 2025, arXiv:2505.23725.

Every 30 steps, Nesterov with rate 0.8 and momentum 0.9, few bits with a residual. This is the outer part only: the
paper's inner optimizer is Muon, which the recipe chooses. Here: 4 bits, as `int2` is coarser than the paper's two.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("muloco-outer")
def muloco_outer() -> str:
    """The published outer step, and a residual that decays by 0.9."""
    return "every(30, outer_lr=0.8, outer_momentum=0.9, nesterov=true, decay=0.9)|all|int4"
