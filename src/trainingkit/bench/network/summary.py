"""From what the workers measured to the shared result: ratios with bounds, bytes, losses, rho. Pure.

kept_share   median over rounds of (no-communication step / our step)
rho          (plain step - no-communication step) / no-communication step, medians
equal steps  validation loss where all contenders that agree have one
equal time   the curve, laid over the contender's own median step time, at the moment when the quickest has done all
             its steps; between two evaluations on a straight line
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from trainingkit.bench.network.spec import (
    AUTO_GOAL,
    AUTO_GOALS,
    JUDGED,
    KEPT_GOAL,
    PLAIN,
    REFERENCE,
    TWIN,
    VS_PLAIN_GOAL,
    Measured,
    NetworkSpec,
)
from trainingkit.bench.paired import Turns
from trainingkit.bench.result import Check, Result, describe_aa, known, make_check, make_result
from trainingkit.core.errors import ClusterError
from trainingkit.sync.section import AUTO_CODEC

Curve = list[list[float]]


def summarise(spec: NetworkSpec, measured: Measured, *, command: str) -> Result:
    """The result.

    Raises:
        ClusterError: there is nothing to compare: the judged contender failed.
    """
    turns = measured.turns
    if not turns.ratios(JUDGED, REFERENCE):
        raise ClusterError(
            "The contender that is judged took no turn.",
            field="--codec",
            found=measured.failed.get(JUDGED, "no reason"),
            expected="at least one turn beside one of the reference",
            next_step="Mend that, choose another --codec, or give it more --minutes.",
        )
    twin = turns.ratio(TWIN, REFERENCE)
    return make_result(
        "network",
        command=command,
        checks=checks_of(spec, turns),
        rows=[row_of(name, measured) for name in measured.labels],
        aa=describe_aa(twin, len(turns.ratios(TWIN, REFERENCE)), "no communication against itself"),
        facts=facts_of(spec, measured),
        notes=notes_of(measured),
    )


def checks_of(spec: NetworkSpec, turns: Turns) -> list[Check]:
    """The share of the speed that is kept; for the controller by link, and that it is never slower than plain DDP."""
    kept = turns.kept_share(JUDGED, REFERENCE)
    if spec.codec != AUTO_CODEC:
        return [make_check("kept_share", kept, KEPT_GOAL)]
    checks = [make_check(f"kept_share@{spec.link}", kept, AUTO_GOALS.get(spec.link, AUTO_GOAL))]
    if turns.ratios(PLAIN, JUDGED):
        checks.append(make_check("vs_plain", turns.ratio(PLAIN, JUDGED), VS_PLAIN_GOAL))
    return checks


def row_of(name: str, measured: Measured) -> dict[str, Any]:
    """One contender's row; a figure that was not measured is null."""
    turns, labels = measured.turns, measured.labels
    ratio, kept = turns.ratio(name, REFERENCE), turns.kept_share(name, REFERENCE)
    steps, horizon_s = common_step(measured), common_time_s(measured)
    curve = measured.losses.get(name, [])
    return {
        "contender": name,
        "label": labels[name] + (" (again)" if name == TWIN else ""),
        "turns": len(turns.seconds.get(name, {})),
        "step_s": known(turns.median_s(name)),
        "ratio": known(ratio.value),
        "ratio_low": known(ratio.low),
        "ratio_high": known(ratio.high),
        "kept_share": known(kept.value),
        "kept_low": known(kept.low),
        "kept_high": known(kept.high),
        "wire_bytes": _median(measured.wire_bytes.get(name, [])),
        "said_bytes": _median(measured.said_bytes.get(name, [])),
        "loss_equal_steps": loss_at(curve, steps) if steps is not None else None,
        "loss_equal_time": loss_at(curve, horizon_s / turns.median_s(name)) if curve and horizon_s else None,
        "curve": curve,
        "error": measured.failed.get(name, ""),
    }


def facts_of(spec: NetworkSpec, measured: Measured) -> dict[str, Any]:
    """What was run, and the figures that belong to all rows."""
    turns = measured.turns
    none_s, plain_s = turns.median_s(REFERENCE), turns.median_s(PLAIN)
    return {
        "hosts": spec.hosts,
        "link": spec.link,
        "delay_s": spec.delay_s,
        "codec": spec.codec,
        **measured.facts,
        "rho": known((plain_s - none_s) / none_s),
        "rounds": measured.rounds,
        "steps_per_turn": spec.steps_per_turn,
        "equal_steps": common_step(measured),
        "equal_time_s": common_time_s(measured),
    }


def notes_of(measured: Measured) -> list[str]:
    """What a reader should mind."""
    notes = [f"{measured.labels.get(name, name)} stopped: {why}" for name, why in measured.failed.items()]
    if not any(measured.wire_bytes.values()):
        notes.append("No interface but loopback was there, so bytes are only what the contenders say.")
    return notes


def common_step(measured: Measured) -> int | None:
    """The largest step at which every contender that has losses has one."""
    curves = [curve for name, curve in measured.losses.items() if curve and name not in measured.failed]
    shared = set.intersection(*({int(step) for step, _ in curve} for curve in curves)) if curves else set()
    return max(shared, default=None)


def common_time_s(measured: Measured) -> float | None:
    """Seconds after which the contender that is through its evaluated steps first is through them."""
    ends = [
        curve[-1][0] * measured.turns.median_s(name)
        for name, curve in measured.losses.items()
        if curve and measured.turns.seconds.get(name) and name not in measured.failed
    ]
    return known(min(ends)) if ends else None


def loss_at(curve: Curve, step: float) -> float | None:
    """The loss at a step, on a straight line between evaluations; None beyond the last one or without a curve."""
    finite = [(at, loss) for at, loss in curve if known(loss) is not None]
    if not finite or not finite[0][0] <= step <= finite[-1][0] + 1e-6:
        return None
    steps, losses = zip(*finite, strict=True)
    return float(np.interp(step, steps, losses))


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
