"""The JSON that all benches share: checks with bounds, rows for the table, A/A, machine, versions, command, date."""

from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from trainingkit.bench.paired import is_quiet
from trainingkit.bench.stats import Interval
from trainingkit.cluster.machine import describe_machine, describe_versions
from trainingkit.core.errors import ConfigError
from trainingkit.core.files import write_atomic
from trainingkit.core.section import Section, check

INTERVAL = "90 % interval"
_GOAL = re.compile(r"(>=|<=) (-?[0-9.]+(?:e-?[0-9]+)?)")
TOO_NOISY = "The machine is too noisy: a contender against itself did not show 1.00 +- 0.02. Trust no check below."


class Check(Section):
    """One claim. It holds when the bound on the goal's wrong side does, and never without bounds."""

    name: str = Field(min_length=1, description="what is claimed")
    value: float = Field(description="the median")
    low: float | None = Field(description="lower bound; null: too few samples")
    high: float | None = Field(description="upper bound")
    unit: str = Field(description="'ratio', 's', 'bytes', ...")
    goal: str = Field(pattern=_GOAL, description="'>= 0.95' or '<= 0.14'")
    holds: bool = Field(description="what `judge` says of bounds and goal")
    bounds: str = Field(default=INTERVAL, min_length=1, description="what the bounds are")

    @model_validator(mode="after")
    def _holds_as_judged(self) -> Check:
        if self.holds != judge(self.goal, self.low, self.high):
            raise ValueError(f"holds = {not self.holds} by goal {self.goal} and bounds {self.low}, {self.high}")
        return self


class Result(Section):
    """A bench's whole result. `aa` is a contender against itself; without it the bench has no twin."""

    bench: str = Field(min_length=1, description="name of the bench")
    date: str = Field(description="when it was finished, UTC")
    command: str = Field(description="the command that prints these figures again")
    checks: list[Check] = Field(description="claims with bounds")
    rows: list[dict[str, Any]] = Field(description="one row per contender or setting")
    aa: dict[str, Any] = Field(description="value, low, high, rounds, holds; empty without a twin")
    machine: dict[str, Any] = Field(description="the host")
    versions: dict[str, str] = Field(description="Python and packages")
    facts: dict[str, Any] = Field(default={}, description="what was run: model, batch, link, rho ...")
    notes: list[str] = Field(default=[], description="what a reader should mind, one sentence each")

    @property
    def quiet(self) -> bool:
        """False when A/A was measured and did not hold."""
        return bool(self.aa.get("holds", True))

    @property
    def holds(self) -> bool:
        """True when the machine was quiet and every check holds."""
        return self.quiet and all(claim.holds for claim in self.checks)


def judge(goal: str, low: float | None, high: float | None) -> bool:
    """Whether bounds meet a goal: '>=' by the lower one, '<=' by the upper one.

    >>> judge(">= 0.95", 0.96, 1.01), judge(">= 0.95", 0.94, 1.01), judge("<= 2", 1.0, None)
    (True, False, False)
    """
    match = _GOAL.fullmatch(goal)
    if match is None:
        return False
    bound = low if match[1] == ">=" else high
    if bound is None or not math.isfinite(bound):
        return False
    return bound >= float(match[2]) if match[1] == ">=" else bound <= float(match[2])


def make_check(name: str, interval: Interval, goal: str, *, unit: str = "ratio", bounds: str = INTERVAL) -> Check:
    """A check from an interval.

    Args:
        bounds: what the interval's bounds are.

    Raises:
        ConfigError: the value is not finite, or the goal cannot be read.
    """
    low, high = known(interval.low), known(interval.high)
    found = {"name": name, "value": interval.value, "low": low, "high": high, "unit": unit, "goal": goal}
    found["bounds"] = bounds
    return check(Check, {**found, "holds": judge(goal, low, high)}, field=f"checks.{name}")


def make_result(bench: str, *, command: str, checks: list[Check], rows: list[dict[str, Any]], **more: Any) -> Result:
    """A result of this host, dated now. `more` are the remaining fields of `Result`; `aa` may be an Interval.

    Raises:
        ConfigError: a field that does not fit.
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    values: dict[str, Any] = {"bench": bench, "date": now, "command": command, "checks": checks, "rows": rows}
    values |= {"aa": {}, "machine": describe_machine(), "versions": describe_versions(), **more}
    return check(Result, values, field="result")


def describe_aa(interval: Interval, rounds: int, of: str) -> dict[str, Any]:
    """The `aa` of a result."""
    bounds = {"value": known(interval.value), "low": known(interval.low), "high": known(interval.high)}
    return {"of": of, **bounds, "rounds": rounds, "goal": "0.98 to 1.02", "holds": is_quiet(interval)}


def known(value: float) -> float | None:
    """JSON has no NaN: what is not finite is null."""
    return value if math.isfinite(value) else None


def write(result: Result, path: Path) -> None:
    """Write the JSON atomically, after checking that what is written can be read again.

    Raises:
        ConfigError: a row that JSON cannot hold, or a path that cannot be written.
    """
    try:
        text = json.dumps(result.model_dump(), indent=1, allow_nan=False) + "\n"
        _parse(text, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"The result cannot be written: {error}",
            field="--json",
            found=str(path),
            expected="a file name in a folder that can be written, and finite numbers",
            next_step="Choose another file; a figure that is not finite comes from a measurement that failed.",
        ) from error


def read(path: Path) -> Result:
    """A result from its file.

    Raises:
        ConfigError: missing, not JSON, or not a result.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"), path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"This is not a bench's result: {error}",
            field="RESULT",
            found=str(path),
            expected="JSON that a bench wrote with --json",
            next_step="Make it again: trainingkit bench network --json FILE",
        ) from error


def _parse(text: str, path: Path) -> Result:
    return check(Result, json.loads(text), field=path.name)
