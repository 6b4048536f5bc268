"""Models by name, from `presets.toml`."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any

from trainingkit.planner.models.convnet import ConvNet
from trainingkit.planner.models.transformer import Transformer


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("trainingkit.planner.models").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def preset_names() -> list[str]:
    """All names, sorted."""
    return sorted(_table())


def preset(name: str) -> Transformer | ConvNet | None:
    """The model called `name`, or None."""
    values = _table().get(name)
    if values is None:
        return None
    if "depth" in values:
        return ConvNet(name=name, **values)
    return Transformer(name=name, **{"kv_heads": values["heads"], **values})
