"""What do the agreed values of a part look like? Sums over some of its blocks, the same bits on every machine.

Squares and sums are of float64 and each is rounded in one way only; sums are taken by halves, elementwise, so their
order does not depend on the width of a processor's registers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainingkit.exchange.parts import Part, Piece
from trainingkit.sync.auto.values import Look

WIDE = 256
NARROW = 64
SAMPLE_BLOCKS = 64
"""Of 256 values each, spread evenly over the part."""


def look_at(part: Part) -> Look:
    """Look at what a part holds after a round. One without a whole block looks like nothing.

    Args:
        part: its values are the agreed mean, in the wire's unit.
    """
    return look(sampled(part.values.pieces, part.layout.elements)).as_coded(str(part.codec.spec))


def look(blocks: Tensor) -> Look:
    """Sums over blocks.

    Args:
        blocks: [n, 256] fp32, finite.
    """
    if not len(blocks):
        return Look()
    magnitudes = blocks.double().abs()
    peaks = magnitudes.view(-1, NARROW).amax(-1)
    rows = _row_sums(magnitudes)
    return Look(
        energy=_sum(_row_sums(magnitudes * magnitudes)),
        peaks=NARROW * _sum(peaks * peaks),
        spread=_sum(rows * rows) / WIDE,
        count=blocks.numel(),
    )


def sampled(pieces: Sequence[Piece], elements: int) -> Tensor:
    """[at most SAMPLE_BLOCKS, 256] fp32: whole blocks of so many elements, copied.

    Args:
        pieces: each begins at a multiple of 256.
    """
    blocks = elements // WIDE
    wanted = min(blocks, SAMPLE_BLOCKS)
    numbers = torch.tensor([i * blocks // wanted for i in range(wanted)], dtype=torch.long)
    found = [torch.zeros(0, WIDE)]
    for piece in pieces:
        first, count = piece.start // WIDE, piece.tensor.numel() // WIDE
        here = numbers[(numbers >= first) & (numbers < first + count)] - first
        found.append(piece.tensor[: count * WIDE].view(-1, WIDE)[here])
    return torch.cat(found)


def _row_sums(values: Tensor) -> Tensor:
    """[n, a power of two] float64 -> [n] float64."""
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half] + values[:, half:]
    return values[:, 0]


def _sum(values: Tensor) -> float:
    """Of [n] float64."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total
