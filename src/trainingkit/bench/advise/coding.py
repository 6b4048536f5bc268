"""What a rung's codec costs a processor in a step: whole rounds of some of the buckets, over lanes that lead nowhere.

Everything that runs on the exchange's threads is in it: finding the elements, encoding, the sum over ranks, decoding,
putting back. What came from the other ranks is this rank's own code.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from trainingkit.codec import Codec
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.registry import pick_exchange
from trainingkit.sync.auto.forecast import Load
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.buckets import Buckets, Codecs, Shape
from trainingkit.sync.doors import EXEMPT_CODEC

SAMPLE_ELEMENTS = 4 << 20
"""Of a step's elements, so many are coded at least, if there are so many."""
TRIES = 2
CACHE_BYTES = 32 << 20
"""More than a core's share of the last cache."""
MOST_LANES = 2


class _Done:
    """A collective that needs no waiting."""

    def wait(self) -> None:
        """Nothing to wait for."""


class Loopback(Lane):
    """A lane of a job of `ranks`, seen from rank 0, on which everybody says what rank 0 says."""

    def __init__(self, ranks: int) -> None:
        self.rank = 0
        self.world_size = ranks
        self.sent_bytes = 0

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> _Done:
        """Every row is the one for rank 0."""
        received.copy_(sent[:1].expand_as(received))
        return _Done()

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> _Done:
        """Every row is the own one."""
        received.copy_(sent.expand_as(received))
        return _Done()


@dataclass(frozen=True)
class Bench:
    """Buckets of a job of `ranks`, coded here."""

    ranks: int
    rungs: tuple[Rung, ...]
    buckets: Buckets

    @staticmethod
    def of(rungs: Sequence[Rung], squeezed: set[str], ranks: int) -> Bench:
        """Set up what `sync.doors.squeeze` would.

        Args:
            squeezed: names of the parameters that the rungs' codecs carry.
        """
        codecs = {rung.codec: Codec(rung.codec) for rung in rungs if rung.codec != PLAIN}
        exempt = Codec(EXEMPT_CODEC)
        for codec in (*codecs.values(), exempt):
            codec.warm()
        lanes = [Loopback(ranks) for _ in range(MOST_LANES)]
        buckets = Buckets(
            Codecs(codecs, exempt, pick_exchange(ranks)),
            lanes,
            squeezed,
            clock=StageClock(),
            weight=lambda: 1.0,
            normalise=any(rung.normalise for rung in rungs),
        )
        return Bench(ranks, tuple(rungs), buckets)

    def loads(self, shapes: Sequence[Shape]) -> list[Load]:
        """Bytes of each rung; seconds of coding are left at zero."""
        return self.buckets.loads(shapes, self.rungs, self.ranks)

    def code_s(self, rung: Rung, shapes: Sequence[Shape], gradients: Sequence[torch.Tensor]) -> float:
        """Processor seconds of a step that coding takes, from those of a sample of the buckets.

        Args:
            gradients: of the buckets of these shapes, fp32.
        """
        if rung.codec == PLAIN:
            return 0.0
        picked = sample([gradient.numel() for gradient in gradients])
        coded = sum(gradients[index].numel() for index in picked)
        sampled = [(shapes[index], gradients[index]) for index in picked]
        self._try(rung, sampled)
        seconds = statistics.mean(self._try(rung, sampled) for _ in range(TRIES))
        return seconds * sum(gradient.numel() for gradient in gradients) / coded

    def _try(self, rung: Rung, sampled: Sequence[tuple[Shape, torch.Tensor]]) -> float:
        """Processor seconds of one round of each bucket, each with cold caches: between two, a step computes."""
        other = torch.zeros(CACHE_BYTES // 4)
        seconds = 0.0
        for shape, gradient in sampled:
            other.add_(1.0)
            begin = time.process_time()
            self._round(rung, shape, gradient)
            seconds += time.process_time() - begin
        return seconds

    def _round(self, rung: Rung, shape: Shape, gradient: torch.Tensor) -> None:
        bucket = self.buckets.of(shape)
        round_ = bucket.round(rung, 0, rung.codec)
        for carried in bucket.carried:
            carried.take(gradient, 1.0)
        for stage in round_.stages:
            stage()
        for carried in bucket.carried:
            carried.put(gradient, 1.0)
        bucket.commit(0)


def sample(sizes: Sequence[int], wanted: int = SAMPLE_ELEMENTS) -> list[int]:
    """Indices of some buckets, spread evenly, with at least `wanted` elements together; all where there are fewer."""
    for count in range(1, len(sizes)):
        picked = [round((i + 0.5) * len(sizes) / count - 0.5) for i in range(count)]
        if sum(sizes[index] for index in picked) >= wanted:
            return picked
    return list(range(len(sizes)))


def code_seconds(
    bench: Bench, shapes: Sequence[Shape], gradients: Sequence[torch.Tensor], told: Callable[[Rung], None]
) -> list[float]:
    """Of each rung, in their order; `told` hears whose turn it is."""
    found = []
    for rung in bench.rungs:
        told(rung)
        found.append(bench.code_s(rung, shapes, gradients))
    return found
