"""Evaluation: mean loss over a fixed set of validation samples, and what follows from it.

Each rank evaluates its share; sums travel once, in float64. The loss is weighted by the tokens behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainingkit.core.datainfo import DataInfo
from trainingkit.precision.compute import forward_context
from trainingkit.sync.control import peers_watched
from trainingkit.trainer.loss import call_model, count_tokens, find_loss, to_device


def evaluate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss_fn: Callable[[Any, Any], Any] = call_model,
    info: DataInfo | None,
    group: dist.ProcessGroup | None,
    compute: str,
    device: torch.device,
) -> tuple[dict[str, float], int]:
    """Metrics over all ranks' batches, and the number of samples.

    Args:
        batches: this rank's share; ranks may have different numbers of them.
        loss_fn: as for a training step; what it returns may hold `logits`, too.

    Returns:
        `loss` in nats; `bits_per_byte` where the data tell bytes per token (loss / ln 2 / bytes per token);
        `accuracy` where the output has `logits: [batch, classes]` and the batch `labels: [batch]`.
    """
    was_training = model.training
    model.eval()
    sums = torch.zeros(5, dtype=torch.float64)
    with torch.no_grad(), forward_context(compute, device):
        for batch in batches:
            sums += _batch_sums(loss_fn, model, to_device(batch, device))
    model.train(was_training)
    if group is not None:
        with peers_watched():
            dist.all_reduce(sums, group=group)
    loss_sum, weight, samples, correct, judged = sums.tolist()
    metrics = {"loss": loss_sum / weight if weight else math.nan}
    if info is not None and info.task == "language" and info.bytes_per_token:
        metrics["bits_per_byte"] = metrics["loss"] / math.log(2) / info.bytes_per_token
    if judged:
        metrics["accuracy"] = correct / judged
    return metrics, round(samples)


def _batch_sums(loss_fn: Callable[[Any, Any], Any], model: nn.Module, batch: Any) -> torch.Tensor:
    """[loss x weight, weight, samples, correct, judged] of one batch."""
    output = loss_fn(model, batch)
    weight = count_tokens(batch)
    first = next((v for v in batch.values() if isinstance(v, torch.Tensor)), None) if isinstance(batch, dict) else None
    samples = first.shape[0] if first is not None else weight
    correct = judged = 0
    labels = batch.get("labels") if isinstance(batch, dict) else None
    logits = getattr(output, "logits", None)
    if isinstance(labels, torch.Tensor) and labels.dim() == 1 and logits is not None and logits.dim() == 2:
        correct = int((logits.argmax(-1) == labels).sum())
        judged = labels.numel()
    loss = float(find_loss(output))
    return torch.tensor([loss * weight, weight, samples, correct, judged], dtype=torch.float64)
