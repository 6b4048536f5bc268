"""Streaming DiLoCo: Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, arXiv:2501.18512.

Fragments of strided layers every 100 steps, applied about 5 steps later, 4-bit values, Nesterov with rate 0.4. Here:
int4 in blocks with a residual in place of fp4 without one; the whole correction is added to the local model, where the
paper mixes the two half and half.
"""

from trainingkit.sync.every.presets import PRESETS


@PRESETS.register("streaming-diloco")
def streaming_diloco() -> str:
    """Four fragments, which are twelve layers of the paper's models."""
    return "every(100, tau=5, fragments=4, outer_lr=0.4, outer_momentum=0.9, nesterov=true)|all|int4"
