"""The asking side of the bench of changing links: the lab, the workers in it, the rates, and the result."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainingkit.bench.changes.spec import ChangesSpec, Found, Phase
from trainingkit.bench.network.run import Glance
from trainingkit.bench.network.stage import UNSHAPE, Stage
from trainingkit.bench.result import Check, Result, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.netlab import JobResult, Lab, LabSpec
from trainingkit.netlab.rates import UNSHAPED, parse_rate

WORKER = "trainingkit.bench.changes.worker"
POLL_S = 0.05
START_S = 300.0
STEP_S = 30.0
"""The most that a step may take on average, for the deadline."""
REST_STEPS = 50

Show = Callable[[Glance], None]


def run(spec: ChangesSpec, *, command: str, show: Show = lambda glance: None) -> Result:
    """Measure, and make the shared result.

    Args:
        command: what a person types to get it again.
        show: called when something has changed.

    Raises:
        ClusterError: no lab can be made here, or a worker failed.
        ConfigError: the spec cannot be used.
    """
    spec.network().job()
    for rate in spec.rates:
        parse_rate(rate, field="--rates")
    lab_spec = LabSpec(hosts=spec.hosts, link=UNSHAPED)
    with (
        Lab(lab_spec) as lab,
        tempfile.TemporaryDirectory(prefix="trainingkit-bench-") as folder,
        ThreadPoolExecutor(1) as pool,
    ):
        stage = Stage(Path(folder))
        stage.spec.write_text(spec.model_dump_json(), encoding="utf-8")
        argv = [sys.executable, "-m", WORKER, folder]
        deadline_s = START_S + STEP_S * spec.steps * len(spec.rates)
        job = pool.submit(lab.launch, argv, world_size=spec.hosts, deadline_s=deadline_s)
        try:
            _follow(lab, stage, job, show)
        except BaseException:
            lab.close()
            raise
        job.result()
        found = Found.from_json(stage.measured.read_text(encoding="utf-8"))
    return result_of(spec, found, command=command)


def _follow(lab: Lab, stage: Stage, job: Future[JobResult], show: Show) -> None:
    """Open the gates with the rates they ask for, and show the rest, until the job has ended."""
    place, rate = 0, UNSHAPED
    while not job.done():
        lines, place = stage.told(place)
        for line in lines:
            rate = line.get("rate", rate)
            if "gate" in line:
                for host in lab.hosts:
                    lab.set_rate(host, UNSHAPED if line["gate"] == UNSHAPE else rate)
                stage.open_gate(line["gate"])
            elif "done" in line:
                show(Glance(line["part"], "", line["done"], None, str(line.get("rung", ""))))
        time.sleep(POLL_S)


def result_of(spec: ChangesSpec, found: Found, *, command: str) -> Result:
    """Checks by phase, and a row for each."""
    checks = [check for phase in found.phases for check in _checks(phase)]
    checks += [
        make_check("same_decisions", _exact(float(found.same_decisions)), ">= 1"),
        make_check("replay_same_bits", _exact(float(found.same_bits)), ">= 1"),
    ]
    return make_result(
        "changes",
        command=command,
        checks=checks,
        rows=[_row(phase) for phase in found.phases],
        aa={},
        facts={"hosts": spec.hosts, "steps_per_rate": spec.steps, **found.facts},
        notes=[
            "The right rung is what the forecast picks for the rate that the link was given; behind is the forecast "
            "of the rung that was chosen over that of the right one. Counts and comparisons of bits have no interval."
        ],
    )


def _checks(phase: Phase) -> list[Check]:
    after = [step for step, *_ in phase.moves if step - phase.first_step > 30]
    share = len(after) / max(1.0, (phase.last_step - phase.first_step - 30) / REST_STEPS)
    return [
        make_check(f"steps_to_rung@{phase.rate}", _exact(float(phase.steps_to_rung)), "<= 30"),
        make_check(f"behind_right@{phase.rate}", _exact(phase.behind), "<= 1.05"),
        make_check(f"moves_per_50_after@{phase.rate}", _exact(float(share)), "<= 1"),
    ]


def _row(phase: Phase) -> dict[str, Any]:
    return {
        "rate": phase.rate,
        "steps": f"{phase.first_step + 1} to {phase.last_step}",
        "rung": phase.rung,
        "right": phase.right,
        "behind": phase.behind,
        "steps_to_rung": phase.steps_to_rung,
        "moves": "; ".join(f"step {step + 1}: {reason}" for step, _, reason in phase.moves),
    }


def _exact(value: float) -> Interval:
    return Interval(value, value, value)
