"""What is a contender? A copy of the model with a way of its own to agree on gradients; a file each in `contenders`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainingkit.core.registry import Registry


@dataclass(frozen=True)
class Setting:
    """What the builders of contenders may use.

    Args:
        group: a Gloo group over all ranks that only this contender uses, so that its failure is its own.
        codec: what the contender "squeezed" sends.
        timeout_s: deadline of one collective.
    """

    group: dist.ProcessGroup
    codec: str
    timeout_s: float

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return dist.get_world_size(self.group)


@dataclass(frozen=True)
class Contender:
    """One way to agree.

    Args:
        label: what the table calls it.
        module: what forward is called on.
        backward: context of forward and backward.
        finish: ends the step after the optimizer's update; returns the bytes it says this rank sent.
        close: releases threads.
        agrees: False when ranks do not exchange gradients; its loss then means nothing beside the others'.
    """

    label: str
    module: nn.Module
    backward: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    finish: Callable[[], int] = lambda: 0
    close: Callable[[], None] = lambda: None
    agrees: bool = True


Builder = Callable[[nn.Module, Setting], Contender]
CONTENDERS: Registry[Builder] = Registry("contender", "trainingkit.bench.contenders")
"""Entries: builders. All ranks build the same contenders in the same order."""


def data_parallel(model: nn.Module, group: dist.ProcessGroup, **options: Any) -> DistributedDataParallel:
    """DDP over models that are seeded alike, so that nothing is broadcast when it is built."""
    return DistributedDataParallel(model, process_group=group, forward_sync_buffers=False, init_sync=False, **options)


def dense_bytes(model: nn.Module) -> int:
    """Bytes of all gradients in fp32."""
    return sum(4 * p.numel() for p in model.parameters() if p.requires_grad)


def ring_bytes(n_bytes: float, ranks: int) -> int:
    """What one rank sends in an all-reduce of `n_bytes`: 2 (N - 1) / N of it."""
    return round(2 * (ranks - 1) / ranks * n_bytes)
