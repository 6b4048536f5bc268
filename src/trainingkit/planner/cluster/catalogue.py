"""GPUs by name, from `gpus.toml`."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib import resources

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.core.section import check
from trainingkit.planner.cluster.gpu import Gpu


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, Gpu]:
    text = resources.files("trainingkit.planner.cluster").joinpath("gpus.toml").read_text(encoding="utf-8")
    return {name: check(Gpu, _floats({"name": name, **values})) for name, values in tomllib.loads(text).items()}


def _floats(values: dict[str, object]) -> dict[str, object]:
    return {k: {n: float(v) for n, v in x.items()} if isinstance(x, dict) else x for k, x in values.items()}


@lru_cache(maxsize=1)
def _by_any_name() -> dict[str, Gpu]:
    return {name.lower(): gpu for gpu in _catalogue().values() for name in (gpu.name, *gpu.also)}


def gpu_names() -> list[str]:
    """Names in the catalogue, sorted."""
    return sorted(_catalogue())


def gpu_named(name: str, *, field: str = "gpu") -> Gpu:
    """The GPU called `name`, by any of its names, in any case.

    Raises:
        ConfigError: there is none; the message lists all and the nearest.
    """
    found = _by_any_name().get(name.lower())
    if found is None:
        close = nearest(name.lower(), _by_any_name())
        raise ConfigError(
            f"There is no GPU called {name!r} in the catalogue.",
            field=field,
            found=repr(name),
            expected="one of " + ", ".join(gpu_names()),
            next_step=f"Did you mean {_by_any_name()[close].name!r}?"
            if close
            else "Choose the most similar one, and override what differs in a [device] table.",
        )
    return found
