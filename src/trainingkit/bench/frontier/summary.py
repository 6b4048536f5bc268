"""From runs to the shared result: a row per task and scheme, the gaps at 1/20 of fp32's bytes, the article's claims."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainingkit.bench.frontier.coder import FP32_BITS
from trainingkit.bench.frontier.gaps import UNITS, gap, mean_interval
from trainingkit.bench.frontier.kept import Kept, task_of
from trainingkit.bench.frontier.pareto import Point, frontier
from trainingkit.bench.frontier.reference import reference_of
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.result import Check, Result, known, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.core.errors import ConfigError

NOTES = [
    "Workers are simulated in one process; what a message decodes to is what real messages of that size would.",
    "Bits are those of one worker's messages, one way, per trainable parameter and step, over the whole run. Warm-up "
    "is included, and so are 16 bits for each parameter that is exempt (one-dimensional, tiny, embeddings, heads). "
    "Carried bits are those of the tensors that the scheme carries alone: what a large model comes near to.",
    "A gap is that to dense gradients in fp32 with the same optimizer and seed. Its 90 % interval is Student's over "
    "the seeds; with one seed there is none.",
    "The frontier is that of the rows with the task's largest number of seeds; with fewer, a row can be lucky.",
    "A coder's own random numbers (stochastic rounding, places, signs of a rotation) do not depend on the seed.",
    "A preset is after a published setting, with differences. All: four workers, short runs, exempt tensors in bf16. "
    "DGC: AdamW, 1.56 % at the end, two densities of warm-up. SparseLoCo, MuLoCo, DGC: the owner codes the mean again "
    "where the papers gather. DiLoCo: every 20 steps, the outer step on carried tensors only. 1-bit Adam: no frozen "
    "second moment.",
    "A check takes, of the schemes whose bytes are few enough, the one with the smallest mean gap. The best of many is "
    "flattered by chance; its interval does not know of that.",
]


@dataclass(frozen=True)
class Claim:
    """A check: the best scheme of a task with at most so many bits."""

    name: str
    task: str
    most_bits: float
    goal: str
    unit: str
    kept: bool = False
    """In per cent of dense's figure, in place of the gap."""


CLAIMS = (
    Claim("decoder_gap", "decoder", FP32_BITS / 20, "<= 0.5", "%"),
    Claim("resnet_gap", "resnet", FP32_BITS / 20, "<= 0.3", "points"),
    Claim("bert_gap", "bert", FP32_BITS / 20, "<= 0.3", "points"),
    Claim("resnet_kept_at_87", "resnet", 0.13 * FP32_BITS, ">= 99.2", "% of dense", kept=True),
    Claim("bert_loss_at_92", "bert", 0.08 * FP32_BITS, "<= 0.3", "points"),
)


def summarise(
    runs: Sequence[Kept], schemes: Mapping[str, Scheme], *, workers: int, command: str, settings: Mapping[str, Any]
) -> Result:
    """The result of a sweep.

    Args:
        runs: of every task, with the dense runs that they are compared with.
        schemes: by name, at least those of the runs.
        settings: more facts, for example how many seeds.

    Raises:
        ConfigError: a figure that a result cannot hold, or runs of one task that saw different data.
    """
    _check_data(runs)
    rows = [row for task in dict.fromkeys(run.task for run in runs) for row in _rows(task, runs, schemes)]
    checks, chosen, notes = [], {}, list(NOTES)
    for claim in CLAIMS:
        check, scheme = _judged(claim, [row for row in rows if row["task"] == claim.task])
        if check is None:
            notes.append(f"{claim.name} is not judged: no scheme of the sweep has few enough bits in {claim.task}.")
        else:
            checks.append(check)
            chosen[claim.name] = f"{scheme}, at most {claim.most_bits:.3g} bits"
    facts = {**settings, "workers": workers, "best": chosen, **_facts(runs)}
    return make_result("frontier", command=command, checks=checks, rows=rows, facts=facts, notes=notes)


def _check_data(runs: Sequence[Kept]) -> None:
    """Refuse to compare runs of one task on different data."""
    for task in dict.fromkeys(run.task for run in runs):
        digests = {str(run.facts.get("sha256", "none")): run for run in runs if run.task == task}
        if len(digests) > 1:
            found = ", ".join(f"{digest[:12]} ({run.scheme}, seed {run.seed})" for digest, run in digests.items())
            raise ConfigError(
                f"The kept runs of {task} did not see the same data.",
                field="--cache",
                found=f"sha256 {found}",
                expected="one digest for all runs of a task",
                next_step="Give another folder with --cache, so that all runs are done again on the data of today.",
            )


def _rows(task: str, runs: Sequence[Kept], schemes: Mapping[str, Scheme]) -> list[dict[str, Any]]:
    """A row per scheme, by bits from many to few."""
    own = sorted((run for run in runs if run.task == task), key=lambda run: (run.scheme, run.seed))
    groups = {name: list(group) for name, group in itertools.groupby(own, key=lambda run: run.scheme)}
    rows = []
    for name, group in groups.items():
        dense = {run.seed: run.value for run in groups[reference_of(schemes[name]).name]}
        rows.append(_row(task, group, dense, schemes[name]))
    seeds = max(len(row["gaps"]) for row in rows)
    judged = [row for row in rows if row["gap"] is not None and len(row["gaps"]) == seeds]
    points = [Point(row["scheme"], row["bits"], row["gap"]) for row in judged]
    line = {point.scheme for point in frontier(points)}
    for row in rows:
        row["on_frontier"] = row["scheme"] in line
    return sorted(rows, key=lambda row: -row["bits"])


def _row(task: str, group: Sequence[Kept], dense: Mapping[int, float | None], scheme: Scheme) -> dict[str, Any]:
    metric = task_of(task).metric
    gaps = [gap(metric, run.value, dense[run.seed]) for run in group]
    finite = [found for found in gaps if found is not None]
    interval = mean_interval(finite) if len(finite) == len(gaps) else Interval(float("nan"), float("nan"), float("nan"))
    bits = statistics.fmean(run.bits for run in group)
    return {
        "task": task,
        "scheme": scheme.name,
        "label": scheme.label,
        "side": scheme.side,
        "optimizer": scheme.optimizer,
        "bits": bits,
        "carried_bits": statistics.fmean(run.carried_bits for run in group),
        "ratio": FP32_BITS / bits,
        "metric": metric,
        "values": [run.value for run in group],
        "gaps": gaps,
        "gap": known(interval.value),
        "gap_low": known(interval.low),
        "gap_high": known(interval.high),
        "unit": UNITS[metric],
        "diverged": len(gaps) - len(finite),
        "on_frontier": False,
        "preset": scheme.preset,
        "spec": scheme.spec if scheme.in_package else None,
        "dense_mean": _mean([dense[run.seed] for run in group]),
    }


def _judged(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> tuple[Check | None, str]:
    """The check of the best scheme with few enough bits, and its label; schemes with most seeds go first."""
    able = [row for row in rows if row["bits"] <= claim.most_bits and row["gap"] is not None]
    if not able:
        return None, ""
    seeds = max(len(row["gaps"]) for row in able)
    best = min((row for row in able if len(row["gaps"]) == seeds), key=lambda row: row["gap"])
    interval = mean_interval(_shares(best) if claim.kept else best["gaps"])
    return make_check(claim.name, interval, claim.goal, unit=claim.unit), best["label"]


def _shares(row: Mapping[str, Any]) -> list[float]:
    """Per cent of dense's accuracy that each seed keeps."""
    return [100 * value / (value + found) for value, found in zip(row["values"], row["gaps"], strict=True)]


def _facts(runs: Sequence[Kept]) -> dict[str, Any]:
    """Each task's settings, size and data."""
    first = {run.task: run for run in reversed(runs)}
    return {
        name: {
            "title": task_of(name).title,
            **run.settings,
            "parameters": run.parameters,
            "carried_parameters": run.carried_parameters,
            "data": run.facts,
            "torch": ", ".join(sorted({other.torch for other in runs if other.task == name})),
        }
        for name, run in sorted(first.items())
    }


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return statistics.fmean(finite) if finite else None
