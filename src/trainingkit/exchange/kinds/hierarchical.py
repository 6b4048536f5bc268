"""Two levels: fp32 inside an island, squeezed between islands, and every rank carries its own shard across.

    say      fp32 values; row l goes to place l of the island          all-to-all on lane 0
    meet     sum in rank order; encode with the own residual           first collective across, lane 1
    (answer) as in the sharded exchange, between more than two islands  all-gather across, lane 2
    spread   decode the shard's mean                                   all-gather in the island, last lane
    hear     copy

Across, those who have the same place on their islands run the gather or the sharded exchange over their shard. Of M
islands with L ranks each, 2 (M-1)/M messages of the whole bucket leave an island, however many ranks it has; with the
sharded exchange over all ranks L times as many do. The idea is that of hierarchical all-reduce (Jia et al., "Highly
Scalable Deep Learning Training System with Mixed-Precision", 2018).

Who owes what: place l of island m keeps `own` for shard l, which is about the *sum* over its island, so that it
reaches the mean with the factor 1/N as every `own` does. Of other shards a rank owes nothing, except after a state of a
flat exchange was loaded; that is added to the next fp32 message. Inside an island nothing is rounded but sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from trainingkit.cluster.islands import Islands
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.header import HEADER_BYTES, read_header, write_header
from trainingkit.exchange.inherited import Inherited
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.messages import mean_factors
from trainingkit.exchange.parts import Layout, Part, Piece, Residuals, Values
from trainingkit.exchange.registry import EXCHANGES, HIERARCHICAL, Exchange, Grouping, Round, Seat, pick_exchange
from trainingkit.exchange.work import Pending

HEADER = HEADER_BYTES // 4
"""Of fp32 elements."""


@EXCHANGES.register(HIERARCHICAL)
class HierarchicalRound:
    """One bucket's exchange on two levels.

    Args:
        parts: cut as `seat` says: place l of an island carries as many consecutive shards as there are owners across.
        lanes: the first and the last within the island, those between them across.
        weight: gives this rank's weight in the mean.
        each: of how many ranks the values are the sum.
    """

    @staticmethod
    def fits(islands: Islands) -> bool:
        """Over several islands that have the same number of ranks, and several each."""
        return len(islands.groups) > 1 and islands.size is not None and islands.size > 1

    @staticmethod
    def groups(islands: Islands) -> tuple[Grouping, ...]:
        """The island, those who have the same place, the island again."""
        across = _across(len(islands.groups)).groups(Islands.flat(len(islands.groups)))
        return (islands.groups, *(islands.across() for _ in across), islands.groups)

    @staticmethod
    def seat(lanes: Sequence[Lane]) -> Seat:
        """Each place carries a range of shards; who re-encodes one of them is as in the exchange across."""
        local, across = lanes[0], _across(lanes[1].world_size).seat(lanes[1:-1])
        owned = None if across.owned is None else local.rank * across.shards + across.owned
        return across._replace(shards=local.world_size * across.shards, owned=owned)

    def __init__(
        self,
        parts: Sequence[Part],
        lanes: Sequence[Lane],
        weight: Callable[[], float],
        clock: StageClock,
        *,
        each: int = 1,
    ) -> None:
        places = lanes[0].world_size
        self.parts = parts
        self.finite = True
        self.counted = True
        self._lanes = lanes
        self._weight = weight
        self._clock = clock
        self._columns = _columns(parts, places)
        width = self._columns[-1].stop if parts else HEADER
        self._rows = torch.zeros(places, width)
        self._received = torch.zeros(places, width)
        self._shard = torch.zeros(width)
        self._carried = [
            _carried_across(part, lanes, self._shard[columns])
            for part, columns in zip(parts, self._columns, strict=True)
        ]
        self._inherited = [Inherited(part.residuals, _span(part, lanes[0])) for part in parts]
        self._island_weight = 0.0
        self._across = self._round_across(each * places)
        self.stages = (self._say, self._meet, *self._across.stages[1:-1], self._spread, self._hear)
        self._said: Pending | None = None
        self._spreading: Pending | None = None

    def _round_across(self, each: int) -> Round:
        lanes = self._lanes[1:-1]
        make = _across(lanes[0].world_size)
        return make(self._carried, lanes, lambda: self._island_weight, self._clock, each=each)

    def _say(self) -> None:
        with self._clock.stage("encode"):
            for part, columns, owed in zip(self.parts, self._columns, self._inherited, strict=True):
                block = self._rows[:, columns]
                for row, start, values in _by_row(part.values.pieces, block.shape[1]):
                    block[row, start : start + values.numel()] = values
                owed.add_to(block)
            for message in _bytes(self._rows).unbind():
                write_header(message, finite=True, weight=self._weight())
        self._said = Pending(self._lanes[0].all_to_all(_bytes(self._received), _bytes(self._rows)))

    def _meet(self) -> None:
        assert self._said is not None
        with self._clock.stage("wire"):
            self._said.wait()
        with self._clock.stage("encode"):
            weights = [read_header(message)[1] for message in _bytes(self._received).unbind()]
            factors = mean_factors(weights)
            self._island_weight = sum(weights)
            _sum(self._received[:, HEADER:], factors, self._shard[HEADER:])
            for part, carried, owed in zip(self.parts, self._carried, self._inherited, strict=True):
                owed.settle(paid=factors[self._lanes[0].rank] != 0)
                _look(carried.residuals, part.residuals, _span(part, self._lanes[0]))
        self._across.stages[0]()

    def _spread(self) -> None:
        self._across.stages[-1]()
        self.counted = self._across.counted
        write_header(_bytes(self._shard), finite=self._across.finite, weight=0.0)
        self._spreading = Pending(self._lanes[-1].all_gather(_bytes(self._rows), _bytes(self._shard)))

    def _hear(self) -> None:
        assert self._spreading is not None
        with self._clock.stage("wire"):
            self._spreading.wait()
        with self._clock.stage("decode"):
            self.finite = all(read_header(message)[0] for message in _bytes(self._rows).unbind())
            for part, columns in zip(self.parts, self._columns, strict=True):
                block = self._rows[:, columns]
                for row, start, values in _by_row(part.values.pieces, block.shape[1]):
                    values.copy_(block[row, start : start + values.numel()])


def _across(islands: int) -> Exchange:
    """What those with the same place run."""
    return EXCHANGES.get(pick_exchange(islands))


def _bytes(rows: torch.Tensor) -> torch.Tensor:
    return rows.view(torch.uint8)


def _columns(parts: Sequence[Part], places: int) -> list[slice]:
    """Where each part's elements are in a row."""
    found, start = [], HEADER
    for part in parts:
        found.append(slice(start, start + part.layout.padded // places))
        start = found[-1].stop
    return found


def _span(part: Part, local: Lane) -> slice:
    """The elements of a part that this rank carries across."""
    length = part.layout.padded // local.world_size
    return slice(local.rank * length, (local.rank + 1) * length)


def _carried_across(part: Part, lanes: Sequence[Lane], values: torch.Tensor) -> Part:
    """What this rank carries across, as a part of its own: values in a row, residuals seen through `_look`."""
    layout = part.layout
    shards = layout.owners // lanes[0].world_size
    own = Layout(values.numel(), shards, layout.granule, layout.answers)
    residuals = Residuals(values, values, None, None)
    _look(residuals, part.residuals, _span(part, lanes[0]))
    return Part(part.codec, own, Values.of(values), residuals)


def _look(view: Residuals, whole: Residuals, span: slice) -> None:
    """Let the view show this rank's range of the residuals, whichever twin is current."""
    view.own, view.own_next = whole.own[span], whole.own_next[span]
    view.answer, view.answer_next = whole.answer, whole.answer_next


def _by_row(pieces: Sequence[Piece], length: int) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(row, start in it, values) of pieces that are cut into rows of some length."""
    for piece in pieces:
        done = 0
        while done < piece.tensor.numel():
            row, start = divmod(piece.start + done, length)
            count = min(length - start, piece.tensor.numel() - done)
            yield row, start, piece.tensor[done : done + count]
            done += count


def _sum(rows: torch.Tensor, factors: Sequence[float], out: torch.Tensor) -> None:
    """out = sum over ranks of factor x row, in rank order; a rank of factor zero is left out, whatever it says."""
    first = True
    for row, factor in zip(rows.unbind(), factors, strict=True):
        if factor == 0.0:
            continue
        scaled = row if factor == 1.0 else row * factor
        if first:
            out.copy_(scaled)
        else:
            out.add_(scaled)
        first = False
