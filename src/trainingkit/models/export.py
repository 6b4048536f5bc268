"""A trained model as a folder that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from trainingkit.core.errors import ModelError


def export_pretrained(model: nn.Module, folder: Path) -> None:
    """Write `config.json` and `model.safetensors`, so that `AutoModel....from_pretrained(folder)` works.

    Raises:
        ModelError: the model is not from transformers, or the folder is in use or cannot be written.
    """
    save: Any = getattr(model, "save_pretrained", None)
    if save is None:
        raise ModelError(
            "Only models from transformers can be exported in its format.",
            field="model.kind",
            found=type(model).__name__,
            expected="a model of kind 'llama' or 'hf'",
            next_step="The snapshot itself holds the tensors as safetensors: RUN/snapshots/step-*/.",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(
            "The output folder is not empty.",
            field="--output",
            found=str(folder),
            expected="a new or empty folder",
            next_step="Choose another folder, or remove this one.",
        )
    try:
        save(folder)
    except OSError as error:
        raise ModelError(
            f"The model cannot be written: {error.strerror or error}.",
            field="--output",
            found=str(folder),
            expected="a folder that can be written, with room for the model",
            next_step="Choose another folder, or free space.",
        ) from error
