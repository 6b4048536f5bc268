"""Runs that are kept: one JSON file each, under a key that is a digest of all its settings.

A run that is interrupted leaves nothing; one that is kept is never done again. Whoever changes what a run computes
raises `VERSION`; where it is one scheme alone, that scheme's `revision`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from types import FunctionType
from typing import Any

from pydantic import Field

from trainingkit.bench.cache import cache_folder, keep
from trainingkit.bench.cache import read_kept as read_file
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.frontier.task import TASKS, Task
from trainingkit.core.section import Section, check

VERSION = 1
NOT_SETTINGS = ("label", "preset", "in_package", "spec", "tasks")
"""Fields of a scheme that do not change what it computes."""


class Kept(Section):
    """One finished run. See `simulate.Outcome` for the figures."""

    task: str = Field(description="name of the task")
    scheme: str = Field(description="name of the scheme")
    seed: int = Field(description="of the model and of the order of the data")
    value: float | None = Field(description="the task's figure; null: the run diverged")
    bits: float = Field(description="per parameter and step, one way")
    carried_bits: float = Field(description="the same over what the coder carries")
    parameters: int = Field(description="trainable ones")
    carried_parameters: int = Field(description="those that the coder carries")
    diverged_at: int | None = Field(description="the first step without a finite loss")
    losses: list[float] = Field(description="training loss per step")
    seconds: float = Field(description="processor time of the run")
    settings: dict[str, Any] = Field(description="of the task")
    facts: dict[str, Any] = Field(description="of the data, with its sha256")
    torch: str = Field(default="unknown", description="version of torch; runs were kept before it was recorded")


def default_cache() -> Path:
    """The user's cache folder for runs, data and weights."""
    return cache_folder("frontier")


def path_of(cache: Path, task_name: str, task: Task, scheme: Scheme, seed: int, workers: int) -> Path:
    """Where the run is kept."""
    counted = {name: value for name, value in described(scheme).items() if name not in NOT_SETTINGS}
    if not scheme.revision:
        del counted["revision"]
    settings = {
        "version": VERSION,
        "task": [task_name, task.model_dump()],
        "scheme": counted,
        "seed": seed,
        "workers": workers,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return cache / "runs" / f"{task_name}-{scheme.name}-{seed}-{digest[:16]}.json"


def read_kept(path: Path) -> Kept | None:
    """The run, or None when there is none that can be read; a damaged file is as good as none."""
    return read_file(path, Kept)


def write_kept(path: Path, kept: Kept) -> None:
    """Keep a run, whole or not at all. Raises ConfigError."""
    keep(path, json.dumps(kept.model_dump(), allow_nan=False) + "\n")


def task_of(name: str, steps: int | None = None) -> Task:
    """The task with its default settings.

    Args:
        steps: length of a run in place of the default.

    Raises:
        ConfigError: there is none of that name, or a run of no steps is asked for.
    """
    return check(TASKS.get(name, field="--tasks"), {} if steps is None else {"steps": steps})


def described(thing: Any) -> Any:
    """Settings as JSON: plain values, rows and mappings as they are, schemes as what they make, functions by their
    names, others by fields.

    An object is told by its type and the fields it has when it is new, so two coders with equal settings are equal.
    """
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, dict):
        return {str(key): described(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [described(value) for value in thing]
    if isinstance(thing, FunctionType):
        return {"type": "function", "name": thing.__qualname__}
    if isinstance(thing, Scheme):
        values = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        values["coder"] = thing.coder()
        values["warmup"] = [(share, make()) for share, make in thing.warmup]
        return described(values)
    return {"type": type(thing).__qualname__, **described(getattr(thing, "__dict__", {"text": repr(thing)}))}
