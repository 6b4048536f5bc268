"""The second question of this bench: what does talking every 30 steps cost, in loss by rounds, bytes and waiting?

Loss is compared at the small scale, where a hundred rounds are minutes; bytes and waiting at the full one, on a link of
10 Mbit/s. Waiting is all that a step takes longer than without communication, encoding included.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainingkit.bench.network.spec import REFERENCE
from trainingkit.bench.result import Check, make_check
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.bench.timetoloss.catalogue import BASELINE
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, keep, path_of
from trainingkit.bench.timetoloss.curves import Kept, Show, watching
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import APART_LINK, EVERY30, Times
from trainingkit.bench.timetoloss.training import train_here
from trainingkit.core.section import check

STEPS = 3000
PERIOD = 30
RATE = 3e-3
BYTES_GOAL = "<= 2.5e-4"
STALL_GOAL = "<= 0.05"


def gap_specs(spec: TimeToLossSpec, steps: int = STEPS) -> dict[str, CurveSpec]:
    """The two runs at the small scale: dense every step, and every 30."""
    common = {"rate": RATE, "steps": steps, "hosts": spec.hosts, "scale": "tiny", "eval_every": 10 * PERIOD}
    return {name: check(CurveSpec, {**common, "name": name}) for name in (BASELINE, EVERY30)}


def run_gap(spec: TimeToLossSpec, cache: Path, *, show: Show) -> None:
    """Run what is missing of the two."""
    for each in gap_specs(spec).values():
        if Kept(cache).find(each) is None:
            keep(path_of(cache, each), train_here(each, watch=watching(each, 1, show)).model_dump_json())


def gap_rows(spec: TimeToLossSpec, cache: Path) -> list[dict[str, Any]]:
    """Loss of both by rounds; nothing while a run is missing."""
    curves = {name: Kept(cache).find(each) for name, each in gap_specs(spec).items()}
    dense, apart = curves[BASELINE], curves[EVERY30]
    return [] if dense is None or apart is None else pair_by_rounds(dense, apart)


def pair_by_rounds(dense: Curve, apart: Curve) -> list[dict[str, Any]]:
    """A row for each step at which both have a loss."""
    other = {point[0]: point[1] for point in dense.losses}
    return [
        {"rounds": round(step / PERIOD), "dense": other[step], "every30": loss, "gap": loss - other[step]}
        for step, loss in apart.losses
        if step in other
    ]


def checks_of(times: Mapping[str, Times]) -> list[Check]:
    """Bytes a step beside plain DDP's, and the share of a step that the exchange costs; as far as timed."""
    of_link = times.get(APART_LINK)
    if of_link is None:
        return []
    checks = []
    own, plain = (_wire_bytes(of_link, name) for name in (EVERY30, BASELINE))
    if own and plain:
        share = own / plain
        checks.append(make_check("every30_bytes_share", Interval(share, share, share), BYTES_GOAL))
    stalls = [1 - kept for kept in of_link.behind(EVERY30, REFERENCE)]
    if stalls:
        checks.append(make_check(f"stall_share@{APART_LINK}", median_interval(stalls), STALL_GOAL))
    return checks


def _wire_bytes(times: Times, name: str) -> float | None:
    """Median bytes a step: by the interface, which counts headers, or where there is none by what it says."""
    for group in times.groups.values():
        counted = group.wire_bytes.get(name) or group.said_bytes.get(name)
        if counted:
            return statistics.median(counted)
    return None
