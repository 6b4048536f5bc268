"""How big is a bucket? So big that a backward has some two dozen of them, whatever the model's size.

Many buckets hide better: the first starts early, and the last, which nothing hides, is short. Each costs some
milliseconds of turns between threads and one collective's latency, so a model of billions of parameters must not have
tens of thousands. DDP's own default of 25 MB is the upper end.
"""

from __future__ import annotations

from torch import nn

LEAST_MB = 2.0
MOST_MB = 25.0
WANTED = 24


def trainable(model: nn.Module) -> int:
    """Elements that gradients are of."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def bucket_mb(parameters: int, asked: float | None = None) -> float:
    """MB of fp32 in one bucket.

    Args:
        parameters: of the model, the trainable ones.
        asked: what a person set; it counts.
    """
    if asked is not None:
        return asked
    return min(MOST_MB, max(LEAST_MB, 4 * parameters / 2**20 / WANTED))
