"""One DDP bucket as parts: which of its elements which codec carries, and the way there and back.

Elements are taken in the bucket's own storage order, so it does not matter how a gradient is strided (channels_last).
State is keyed by parameter name, never by bucket: buckets are rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from trainingkit.exchange.parts import Layout, Piece, Residuals, Values
from trainingkit.sync.moment import Moment

DIRECT_ELEMENTS = 1 << 14
"""A stretch this long is coded in place: the copy it saves costs more than one more call of the codec."""


@dataclass(frozen=True)
class Run:
    """Consecutive elements of one parameter: where they stand in the bucket and in the part."""

    name: str
    in_bucket: int
    in_part: int
    elements: int

    @property
    def span(self) -> slice:
        """Where it stands in the part."""
        return slice(self.in_part, self.in_part + self.elements)


@dataclass(frozen=True)
class Stretch:
    """Consecutive elements of several parameters that stand together in bucket and part."""

    in_bucket: int
    in_part: int
    elements: int


class Carried:
    """Some of a bucket's parameters, laid end to end.

    Long stretches are coded where they stand in the bucket; what is short, or straddles a granule, is copied to a room
    of its own and back. So is everything where the bucket is not fp32 on the CPU, is scaled, or is normalised.

    Args:
        direct_elements: fewer are copied.
        answers: whether owners encode the mean again.
        normalise: code the elements in units of the agreed second moment's root (`sync.moment`); the residuals are in
            that unit, too.

    Attributes:
        stretches: where the elements are in the bucket.
        values: where the elements are, from `take` on until the next one.
        moment: None where elements are coded as they are.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        owners: int,
        granule: int,
        direct_elements: int = DIRECT_ELEMENTS,
        answers: bool = True,
        normalise: bool = False,
    ) -> None:
        self.runs = tuple(runs)
        self.layout = Layout(sum(run.elements for run in runs), owners, granule, answers)
        self.residuals = Residuals.zeros(self.layout)
        self.values = Values()
        self.stretches = _joined(self.runs)
        whole = [_whole_granules(each, granule) for each in self.stretches]
        self._direct = [each for each in whole if each.elements >= direct_elements]
        self.moment: Moment | None = None
        self._room = torch.zeros(self.layout.padded)
        self._taken: list[Stretch] = []
        if normalise:
            self.set_normalise(on=True, rank=0)

    def set_normalise(self, *, on: bool, rank: int) -> None:
        """From the next step on code in units of a moment that begins anew, or as the elements are.

        A new moment's unit is 1, so turning it on changes no residual; turning it off brings them to gradients' units.

        Args:
            rank: owner of which shard this rank is.
        """
        if on == (self.moment is not None):
            return
        if on:
            self.moment = Moment([run.span for run in self.runs], self.layout.padded)
            return
        assert self.moment is not None
        self._rescale(self.moment.unit, rank)
        self.moment = None

    def take(self, bucket: torch.Tensor, scale: float) -> None:
        """Find the elements of a bucket, times `scale`, in their unit; the padding is zeroed again."""
        in_place = bucket.dtype == torch.float32 and bucket.device.type == "cpu" and scale == 1.0
        direct = self._direct if in_place and self.moment is None else []
        self._taken = _remainder(self.stretches, direct)
        for each in self._taken:
            room = self._room[each.in_part : each.in_part + each.elements]
            room.copy_(bucket[each.in_bucket : each.in_bucket + each.elements])
            if scale != 1.0:
                room.mul_(scale)
            if self.moment is not None:
                room.div_(self.moment.unit[each.in_part : each.in_part + each.elements])
        self._room[self.layout.elements :] = 0.0
        self.values.pieces = self._pieces(bucket, direct)

    def put(self, bucket: torch.Tensor, scale: float) -> None:
        """Copy back, times `scale`, what `take` had copied; a moment learns from it, without the scale."""
        for each in self._taken:
            room = self._room[each.in_part : each.in_part + each.elements]
            if self.moment is not None:
                room.mul_(self.moment.unit[each.in_part : each.in_part + each.elements])
            bucket[each.in_bucket : each.in_bucket + each.elements].copy_(room if scale == 1.0 else room * scale)
        if self.moment is not None:
            self.moment.propose(self._room)

    def commit(self, *, counted: bool, rank: int) -> None:
        """The round was taken: swap the residuals, and bring both to the unit that follows from the agreed mean.

        Changing units rounds: within a step decoded + residual == input, over steps the sum is kept to fp32's rounding.

        Args:
            counted: whether this rank's messages counted in the mean.
            rank: owner of which shard this rank is.
        """
        self.residuals.commit(counted=counted)
        self.follow(rank=rank)

    def follow(self, *, rank: int) -> None:
        """Go on to the unit that follows from the mean that `put` was told; what is owed stays, in that unit."""
        if self.moment is None:
            return
        first = rank * self.layout.shard
        self._room = self.moment.commit(self._room, self.residuals.own, self.residuals.answer, first)

    def _rescale(self, factor: torch.Tensor, rank: int) -> None:
        """Multiply both residuals by [padded] fp32 factors."""
        self.residuals.own.mul_(factor)
        if self.residuals.answer is not None:
            first = rank * self.layout.shard
            self.residuals.answer.mul_(factor[first : first + self.layout.shard])

    def _pieces(self, bucket: torch.Tensor, direct: Sequence[Stretch]) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        done = 0
        for each in direct:
            if each.in_part > done:
                pieces.append(Piece(done, self._room[done : each.in_part]))
            pieces.append(Piece(each.in_part, bucket[each.in_bucket : each.in_bucket + each.elements]))
            done = each.in_part + each.elements
        if done < self.layout.padded:
            pieces.append(Piece(done, self._room[done:]))
        return tuple(pieces)


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


def _whole_granules(stretch: Stretch, granule: int) -> Stretch:
    """What of a stretch begins and ends at multiples of the granule."""
    first = -(-stretch.in_part // granule) * granule
    end = (stretch.in_part + stretch.elements) // granule * granule
    return Stretch(stretch.in_bucket + first - stretch.in_part, first, max(0, end - first))


def _remainder(stretches: Sequence[Stretch], direct: Sequence[Stretch]) -> list[Stretch]:
    """What of the stretches is not in the direct ones, each of which lies within one of them."""
    left: list[Stretch] = []
    for each in stretches:
        at, end = each.in_part, each.in_part + each.elements
        shift = each.in_bucket - each.in_part
        for inner in direct:
            if at <= inner.in_part < end:
                left.append(Stretch(at + shift, at, inner.in_part - at))
                at = inner.in_part + inner.elements
        left.append(Stretch(at + shift, at, end - at))
    return [each for each in left if each.elements]
