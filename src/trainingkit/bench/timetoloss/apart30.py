"""The second question of this bench: what does talking every 30 steps cost, in loss by rounds, bytes and waiting?

Loss is compared at the small scale, where a hundred rounds are minutes; bytes and waiting at the full one, on a link of
10 Mbit/s. Waiting is all that a step takes longer than without communication, encoding included. The rate is that of
the small scale's own sweep, whose last runs are as long as these; it is dense training's, so the gap is not flattered.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainingkit.bench.cache import keep
from trainingkit.bench.network.spec import REFERENCE
from trainingkit.bench.result import Check, make_check
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.bench.timetoloss.catalogue import BASELINE
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, Find, path_of
from trainingkit.bench.timetoloss.curves import Kept, Show, watching
from trainingkit.bench.timetoloss.rates import rate_of, sweep_of
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import APART_LINK, EVERY30, Times
from trainingkit.bench.timetoloss.training import train_here

STEPS = 3000
SWEEP_STEPS = 300
PERIOD = 30
ROUNDS_A_ROW = 10
BYTES_GOAL = "<= 2.5e-4"
STALL_GOAL = "<= 0.05"


def small(spec: TimeToLossSpec) -> TimeToLossSpec:
    """The same ranks at the small scale, for a hundred rounds."""
    return spec.model_copy(update={"scale": "tiny", "steps": STEPS, "sweep_steps": SWEEP_STEPS})


def pending_gaps(spec: TimeToLossSpec, find: Find) -> list[CurveSpec]:
    """The runs at the small scale that are missing, as far as can be told: the sweep, dense every step, every 30."""
    asked = small(spec)
    rate = rate_of(asked, "adamw", find)
    wanted = sweep_of(asked, "adamw", find)
    if rate is not None:
        wanted += [asked.curve(name, rate, STEPS) for name in (BASELINE, EVERY30)]
    return [each for each in wanted if find(each) is None]


def run_gap(spec: TimeToLossSpec, cache: Path, *, minutes: float | None, show: Show) -> None:
    """Run what is missing; no run begins after so many `minutes`, None: all of them."""
    end_s = time.monotonic() + (60.0 * minutes if minutes is not None else math.inf)
    while (todo := pending_gaps(spec, Kept(cache).find)) and time.monotonic() < end_s:
        curve = train_here(todo[0], watch=watching(todo[0], len(todo), show))
        keep(path_of(cache, todo[0]), curve.model_dump_json())


def gap_rows(spec: TimeToLossSpec, find: Find) -> list[dict[str, Any]]:
    """Loss of both by rounds; nothing while a run is missing."""
    asked = small(spec)
    rate = rate_of(asked, "adamw", find)
    if rate is None:
        return []
    dense, apart = (find(asked.curve(name, rate, STEPS)) for name in (BASELINE, EVERY30))
    return [] if dense is None or apart is None else pair_by_rounds(dense, apart)


def pair_by_rounds(dense: Curve, apart: Curve) -> list[dict[str, Any]]:
    """A row for every ten rounds at whose end both have a loss."""
    other = {point[0]: point[1] for point in dense.losses}
    return [
        {"rounds": round(step / PERIOD), "dense": other[step], "every30": loss, "gap": loss - other[step]}
        for step, loss in apart.losses
        if step in other and step % (ROUNDS_A_ROW * PERIOD) == 0
    ]


def checks_of(times: Mapping[str, Times]) -> list[Check]:
    """Bytes a step beside plain DDP's, and the share of a step that the exchange costs; as far as timed."""
    of_link = times.get(APART_LINK)
    if of_link is None:
        return []
    checks = []
    own, plain = _wire_bytes(of_link, EVERY30, BASELINE)
    if own and plain:
        share = own / plain
        checks.append(
            make_check("every30_bytes_share", Interval(share, share, share), BYTES_GOAL, bounds="no bounds: counted")
        )
    stalls = [1 - kept for kept in of_link.behind(EVERY30, REFERENCE)]
    if stalls:
        checks.append(make_check(f"stall_share@{APART_LINK}", median_interval(stalls), STALL_GOAL))
    return checks


def _wire_bytes(times: Times, *names: str) -> list[float | None]:
    """Median bytes a step, of one kind for all: by the interface, which counts headers, else by what each says."""
    counted = [_median_of(times, "wire_bytes", name) for name in names]
    return counted if all(counted) else [_median_of(times, "said_bytes", name) for name in names]


def _median_of(times: Times, kind: str, name: str) -> float | None:
    """Of the first group that has any."""
    found = (getattr(group, kind).get(name) for group in times.groups.values())
    return next((statistics.median(values) for values in found if values), None)
