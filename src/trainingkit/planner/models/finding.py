"""From what a person names to a shape: a preset, a `config.json` or its folder, or a module with a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainingkit.core.errors import ModelError
from trainingkit.core.nearest import nearest
from trainingkit.planner.models.convnet import ConvNet
from trainingkit.planner.models.huggingface import from_config
from trainingkit.planner.models.presets import preset, preset_names
from trainingkit.planner.models.transformer import Transformer


def find_model(source: Any) -> Transformer | ConvNet:
    """The shape of `source`.

    Args:
        source: a shape, a preset's name, a path of a `config.json` or of its folder, or an object whose `config` has
            `to_dict` (a transformers model, on the meta device too; PyTorch is not needed to read it).

    Raises:
        ModelError: none of these; the message names the nearest preset.
    """
    if isinstance(source, (Transformer, ConvNet)):
        return source
    as_dict = getattr(getattr(source, "config", None), "to_dict", None)
    if as_dict is not None:
        return from_config(type(source).__name__, as_dict())
    text = str(source)
    return preset(text) or _from_file(text, Path(text))


def _from_file(text: str, path: Path) -> Transformer | ConvNet:
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        close = nearest(text, preset_names())
        raise ModelError(
            f"There is no model called {text!r}.",
            field="--model",
            found=repr(text),
            expected="a config.json, its folder, or one of " + ", ".join(preset_names()),
            next_step=f"Did you mean {close!r}?" if close else "Choose one of these.",
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError) as error:
        raise ModelError(
            "This file is not a model's configuration.",
            field="--model",
            found=f"{path}: {error}",
            expected="the config.json of a Hugging Face model",
            next_step="Choose another file, or a preset: " + ", ".join(preset_names()),
        ) from error
    return from_config(path.parent.name or path.stem, values)
