"""The part that trains: run what is missing, keep it, until nothing is or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainingkit.bench.cache import keep
from trainingkit.bench.network.run import Glance
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, Find, path_of, read_curve
from trainingkit.bench.timetoloss.plan import pending, runs_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.training import train_here

Show = Callable[[Glance], None]


@dataclass(frozen=True)
class Kept:
    """The curves of a cache folder."""

    cache: Path

    @property
    def find(self) -> Find:
        """Look one up."""
        return lambda spec: read_curve(self.cache, spec)

    def remembered(self) -> Find:
        """Look each up once, for as long as nothing is added."""
        found: dict[str, Curve | None] = {}

        def look(spec: CurveSpec) -> Curve | None:
            key = spec.digest()
            if key not in found:
                found[key] = read_curve(self.cache, spec)
            return found[key]

        return look


def missing(spec: TimeToLossSpec, names: Sequence[str], find: Find) -> list[CurveSpec]:
    """The next run of each contender and seed that lacks one; more may follow from what they show."""
    wanted = (pending(spec, name, seed, find) for name, seed in runs_of(spec, names))
    return list({each.digest(): each for each in wanted if each is not None}.values())


def run_missing(
    spec: TimeToLossSpec, names: Sequence[str], cache: Path, *, minutes: float | None, show: Show
) -> list[CurveSpec]:
    """Run what is missing, the first first, and keep it.

    Args:
        minutes: no run begins after so many; None: all of them.

    Returns:
        What is missing still.

    Raises:
        ClusterError: a run failed.
        ConfigError: the cache cannot be written.
    """
    kept = Kept(cache)
    began_s = time.monotonic()
    while todo := missing(spec, names, kept.remembered()):
        if minutes is not None and time.monotonic() - began_s >= 60 * minutes:
            break
        curve = train_here(todo[0], watch=watching(todo[0], len(todo), show))
        keep(path_of(cache, todo[0]), curve.model_dump_json())
    return todo


def watching(spec: CurveSpec, left: int, show: Show) -> Callable[[int, int, float], None]:
    """A watch that shows how far a run is."""
    began_s = time.monotonic()

    def watch(taken: int, of: int, loss: float) -> None:
        spent_s = time.monotonic() - began_s
        text = f"{spec.name}, rate {spec.rate:g}, seed {spec.seed}, loss {loss:.4f}; at least {left} to run"
        show(Glance("curves", spec.name, taken / of, spent_s * (of - taken) / taken, text))

    return watch
