"""From what a model returns to a loss; from a batch to the number of tokens in it."""

from __future__ import annotations

from typing import Any

import torch

from trainingkit.core.errors import StepError

IGNORED = -100
"""Label that the loss leaves out (transformers' convention)."""


def call_model(module: Any, batch: Any) -> Any:
    """The loss function of models that compute their own loss: a dict batch becomes keyword arguments."""
    return module(**batch) if isinstance(batch, dict) else module(batch)


def find_loss(output: Any) -> torch.Tensor:
    """The loss: the output itself, its `.loss`, its ["loss"], or its first item.

    Raises:
        StepError: none of these is a 0-dim tensor.
    """
    candidates: list[Any] = [output, getattr(output, "loss", None)]
    if isinstance(output, dict):
        candidates.append(output.get("loss"))
    elif isinstance(output, (tuple, list)) and output:
        candidates.append(output[0])
    for candidate in candidates:
        if isinstance(candidate, torch.Tensor) and candidate.dim() == 0:
            return candidate
    raise StepError(
        "The model or the loss function did not return a loss.",
        field="loss",
        found=_shown(output),
        expected="a 0-dim tensor, or an output with `.loss`",
        next_step="Return the mean loss over the batch; give the model its labels.",
    )


def _shown(output: Any) -> str:
    shape = getattr(output, "shape", None)
    return type(output).__name__ + (f" of shape {list(shape)}" if shape is not None else "")


def count_tokens(batch: Any) -> int:
    """Tokens of a language batch (labels that count); else samples."""
    if isinstance(batch, dict):
        labels = batch.get("labels")
        if isinstance(labels, torch.Tensor) and labels.dim() > 1:
            return int((labels != IGNORED).sum())
        batch = next((value for value in batch.values() if isinstance(value, torch.Tensor)), None)
    if isinstance(batch, (tuple, list)):
        batch = next((value for value in batch if isinstance(value, torch.Tensor)), None)
    return int(batch.shape[0]) if isinstance(batch, torch.Tensor) and batch.dim() else 1


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on `device`; dicts, lists, tuples and named tuples are walked."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        moved = [to_device(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch
