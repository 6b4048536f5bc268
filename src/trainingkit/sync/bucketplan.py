"""One DDP bucket as parts: which of its elements which codec carries, and the way there and back.

Elements are taken in the bucket's own storage order, so it does not matter how a gradient is strided (channels_last).
State is keyed by parameter name, never by bucket: buckets are rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from trainingkit.exchange.parts import Layout, Residuals


@dataclass(frozen=True)
class Run:
    """Consecutive elements of one parameter: where they stand in the bucket and in the part."""

    name: str
    in_bucket: int
    in_part: int
    elements: int


@dataclass(frozen=True)
class Stretch:
    """Consecutive elements of several parameters that stand together in bucket and part: one copy."""

    in_bucket: int
    in_part: int
    elements: int


class Carried:
    """Some of a bucket's parameters, laid end to end.

    Attributes:
        values: [layout.padded] fp32.
    """

    def __init__(self, runs: Sequence[Run], *, owners: int, granule: int) -> None:
        self.runs = tuple(runs)
        self.layout = Layout(sum(run.elements for run in runs), owners, granule)
        self.values = torch.zeros(self.layout.padded)
        self.residuals = Residuals.zeros(self.layout)
        self._stretches = _joined(self.runs)

    def take(self, bucket: torch.Tensor, scale: float) -> None:
        """Copy the elements out of a bucket, times `scale`; the padding is zeroed again."""
        for stretch in self._stretches:
            part = self.values[stretch.in_part : stretch.in_part + stretch.elements]
            part.copy_(bucket[stretch.in_bucket : stretch.in_bucket + stretch.elements])
        if scale != 1.0:
            self.values.mul_(scale)
        self.values[self.layout.elements :] = 0.0

    def put(self, bucket: torch.Tensor, scale: float) -> None:
        """Copy the elements back, times `scale`."""
        if scale != 1.0:
            self.values.mul_(scale)
        for stretch in self._stretches:
            part = self.values[stretch.in_part : stretch.in_part + stretch.elements]
            bucket[stretch.in_bucket : stretch.in_bucket + stretch.elements].copy_(part)


def split_bucket(
    names: Sequence[str], sizes: Mapping[str, int], squeezed: set[str]
) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Runs of the squeezed parameters of a bucket, and of the others; each laid end to end in bucket order."""
    kinds: tuple[list[Run], list[Run]] = ([], [])
    filled = [0, 0]
    start = 0
    for name in names:
        kind = 0 if name in squeezed else 1
        kinds[kind].append(Run(name, start, filled[kind], sizes[name]))
        filled[kind] += sizes[name]
        start += sizes[name]
    return tuple(kinds[0]), tuple(kinds[1])


def _joined(runs: Sequence[Run]) -> list[Stretch]:
    stretches: list[Stretch] = []
    for run in runs:
        last = stretches[-1] if stretches else None
        if last is not None and last.in_bucket + last.elements == run.in_bucket:
            stretches[-1] = Stretch(last.in_bucket, last.in_part, last.elements + run.elements)
        else:
            stretches.append(Stretch(run.in_bucket, run.in_part, run.elements))
    return stretches
