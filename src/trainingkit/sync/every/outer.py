"""The outer step: what the agreed model does with the workers' mean difference to it.

    b = mu b + d        d the mean of (agreed model - worker), b the momentum
    g = d + mu b        with Nesterov, else b
    x = x - lr g

torch.optim.SGD's arithmetic. Each operation is one that IEEE 754 rounds in one way only (no fused multiply-add), so
that ranks with other processors come to the same bits.
"""

from __future__ import annotations

import torch

from trainingkit.sync.every.settings import Every


def outer_step(agreed: torch.Tensor, mean: torch.Tensor, momentum: torch.Tensor | None, every: Every) -> None:
    """Take the step in place.

    Args:
        agreed: [elements] fp32, x.
        mean: [elements] fp32, d; overwritten.
        momentum: [elements] fp32, b; None where mu is 0.
    """
    if momentum is not None:
        momentum.mul_(every.outer_momentum).add_(mean)
        if every.nesterov:
            mean.add_(momentum * every.outer_momentum)
        else:
            mean.copy_(momentum)
    if every.outer_lr != 1.0:
        mean.mul_(every.outer_lr)
    agreed.sub_(mean)
