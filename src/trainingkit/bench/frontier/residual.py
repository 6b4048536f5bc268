"""The format that a residual is kept in between two exchanges: fp32 as it is, bf16, or int8 with a scale per block.

What narrowing loses is lost: it is one of the things that the bench asks about. int8 rounds to nearest, with the
largest magnitude of each block of 64 as 127.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trainingkit.bench.frontier.coders.form import as_bf16
from trainingkit.bench.frontier.scheme import ResidualName

BLOCK = 64
LARGEST = 127


def narrowed(residual: Tensor, kind: ResidualName) -> Tensor:
    """What a residual reads as after it was stored.

    Args:
        residual: [*shape] fp32.

    Returns:
        [*shape] fp32; the same tensor for "fp32".
    """
    return _FORMATS[kind](residual)


def as_int8(values: Tensor) -> Tensor:
    """[*shape] fp32 rounded to int8 with a scale per block, and back."""
    flat = values.flatten()
    blocks = F.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)
    scale = blocks.abs().amax(dim=1, keepdim=True) / LARGEST
    whole = torch.round(blocks / scale.clamp_min(torch.finfo(torch.float32).tiny))
    return (whole * scale).flatten()[: len(flat)].view(values.shape)


def _as_is(values: Tensor) -> Tensor:
    return values


_FORMATS = {"fp32": _as_is, "bf16": as_bf16, "int8": as_int8}
