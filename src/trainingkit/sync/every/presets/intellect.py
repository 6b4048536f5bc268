"""INTELLECT-1: Jaghouar et al., "INTELLECT-1 Technical Report", 2024, arXiv:2412.01152.

DiLoCo every 100 steps with 8-bit differences. Here: int8 in blocks by their largest value with a residual, where the
report uses 256 bins over six standard deviations without one.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("intellect-1")
def intellect_1() -> str:
    """The published outer step."""
    return "every(100, outer_lr=0.7, outer_momentum=0.9, nesterov=true)|all|int8"
