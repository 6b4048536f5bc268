"""DiLoCo: Douillard et al., "Distributed Low-Communication Training of Language Models", 2023, arXiv:2311.08105.

AdamW on the workers for 500 steps, then Nesterov with rate 0.7 and momentum 0.9 on the mean of their fp32 differences.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("diloco")
def diloco() -> str:
    """As published."""
    return "every(500, outer_lr=0.7, outer_momentum=0.9, nesterov=true)|none"
