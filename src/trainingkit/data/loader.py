"""Endless batches of one rank, read ahead by threads, with a position of two numbers.

Global batch g of a run holds the samples [g * G, (g + 1) * G) of the order, G = batch_size * world_size; rank r
takes the r-th `batch_size` of them. What is read ahead and not delivered does not count as consumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.data.batch import Batch, gather
from trainingkit.data.contract import Source
from trainingkit.data.order import SampleOrder
from trainingkit.data.prefetch import Prefetcher


class Loader:
    """An endless iterator of batches (name -> [batch_size, ...] tensor on the CPU).

    Args:
        source: the samples; read from several threads at once.
        batch_size: samples of this rank in a batch.
        seed: of the order; the same on all ranks.
        rank, world_size: this rank's place.
        threads: readers; 0 reads in `next` itself.
        depth: batches that may be read ahead.
        shuffle: False keeps the source's own order, epoch after epoch.

    Attributes:
        waited_s: seconds the last `next` waited for data.
        any_world_size: the state counts the samples of all ranks, so any number of ranks continues it.

    Raises:
        ConfigError: a number is out of range.
        DataError: the source is empty.
    """

    any_world_size = True

    def __init__(
        self,
        source: Source,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        threads: int = 2,
        depth: int = 4,
        shuffle: bool = True,
    ) -> None:
        _at_least("batch_size", batch_size, 1)
        _at_least("world_size", world_size, 1)
        _at_least("threads", threads, 0)
        _at_least("depth", depth, 1)
        if not 0 <= rank < world_size:
            raise ConfigError(
                "There is no such rank.",
                field="rank",
                found=rank,
                expected=f"0 to {world_size - 1}",
                next_step="Pass this process's own rank.",
            )
        self.source = source
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.threads = threads
        self.depth = depth
        self.shuffle = shuffle
        self.order = SampleOrder(len(source), seed)
        self.waited_s = 0.0
        self._samples = 0
        self._ahead: Prefetcher[Batch] | None = None

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            DataError: a sample of this very batch cannot be read (the cause is attached); the position stays.
        """
        began = time.perf_counter()
        if self._ahead is None:
            self._ahead = self._start()
        batch = self._ahead.take()
        self.waited_s = time.perf_counter() - began
        self._samples += self.global_batch
        return batch

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in one batch."""
        return self.batch_size * self.world_size

    @property
    def epoch(self) -> float:
        """Epochs consumed so far, for people."""
        return self._samples / self.order.n

    def close(self) -> None:
        """End the threads. A later `next` starts new ones and continues with the next undelivered batch."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def state_dict(self) -> dict[str, Any]:
        """The position as JSON: `samples` of all ranks consumed by delivered batches, and what it is relative to."""
        return {
            "samples": self._samples,
            "seed": self.order.seed,
            "length": self.order.n,
            "shuffle": self.shuffle,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly after the last delivered batch, also with another world size or batch size.

        Raises:
            DataError: the state is of other data, another seed or another order, or is not whole.
        """
        for name, own in (("length", self.order.n), ("seed", self.order.seed), ("shuffle", self.shuffle)):
            if state_dict.get(name, "nothing") != own:
                raise _other_data(name, state_dict.get(name, "nothing"), own)
        samples = state_dict.get("samples")
        if not isinstance(samples, int) or samples < 0:
            raise _other_data("samples", samples, "a number of samples")
        self.close()
        self._samples = samples

    def _start(self) -> Prefetcher[Batch]:
        indices = self.order.indices if self.shuffle else partial(_in_turn, self.order.n)
        first = self._samples + self.rank * self.batch_size
        fetch = _Fetch(self.source, indices, first, self.global_batch, self.batch_size)
        return Prefetcher(fetch, threads=self.threads, depth=self.depth)


@dataclass(frozen=True)
class _Fetch:
    """Batch `number` counted from the position `first`. Holds no Loader, so that a forgotten one is collected."""

    source: Source
    indices: Callable[[int, int], np.ndarray]
    first: int
    stride: int
    count: int

    def __call__(self, number: int) -> Batch:
        return gather(self.source, self.indices(self.first + number * self.stride, self.count))


def _in_turn(n: int, start: int, count: int) -> np.ndarray:
    return np.arange(start, start + count) % n


def _at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(
            "This number is too small.",
            field=field,
            found=value,
            expected=f"at least {least}",
            next_step=f"Raise {field}.",
        )


def _other_data(name: str, found: Any, own: Any) -> DataError:
    return DataError(
        "The saved position belongs to other data or another order.",
        field=f"loader.{name}",
        found=found,
        expected=str(own),
        next_step="Resume with the data and the seed the run began with, or start a new run.",
    )
