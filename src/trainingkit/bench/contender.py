"""What is a contender? A copy of the model with a way of its own to agree on gradients; a file each in `contenders`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainingkit.codec import parse
from trainingkit.core.registry import Registry
from trainingkit.sync.contract import Sync


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
        settled: whether it sends as it will go on sending; until then its turns are not measured.
        searches: it settles by what it sees of the link, so it must do so on the shaped one.
        told: what the table calls it at the end, where that is more than the label.
        sync: ours, where it is ours.
        agrees: False when ranks do not exchange gradients; its loss then means nothing beside the others'.
    """

    label: str
    module: nn.Module
    backward: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    finish: Callable[[], int] = lambda: 0
    close: Callable[[], None] = lambda: None
    agrees: bool = True
    settled: Callable[[], bool] = lambda: True
    searches: bool = False
    told: Callable[[], str] | None = None
    sync: Sync | None = None


Builder = Callable[[nn.Module, Setting], Contender]
CONTENDERS: Registry[Builder] = Registry("contender", "trainingkit.bench.contenders")
"""Entries: builders. All ranks build the same contenders in the same order."""


NORMALISED = "+normalised"
"""At the end of a codec that is a contender by itself."""


def builder_of(name: str) -> Builder:
    """The builder of a contender: a registered one, or a codec's.

    Args:
        name: for example "plain", "all|int8(block=64)" or "all|int3(block=64)+normalised".

    Raises:
        ConfigError: there is none of that name, or the codec cannot be read.
    """
    if "|" not in name:
        return CONTENDERS.get(name, field="--contenders")
    from trainingkit.bench.contenders.squeezed import of_codec

    codec = str(parse(name.removesuffix(NORMALISED), field="--contenders"))
    return of_codec(codec, normalise=name.endswith(NORMALISED))


def split_names(text: str) -> list[str]:
    """Names between commas; those inside of a codec's parentheses do not separate."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def data_parallel(model: nn.Module, group: dist.ProcessGroup, **options: Any) -> DistributedDataParallel:
    """DDP over models that are seeded alike, so that nothing is broadcast when it is built."""
    return DistributedDataParallel(model, process_group=group, forward_sync_buffers=False, init_sync=False, **options)


def dense_bytes(model: nn.Module) -> int:
    """Bytes of all gradients in fp32."""
    return sum(4 * p.numel() for p in model.parameters() if p.requires_grad)


def ring_bytes(n_bytes: float, ranks: int) -> int:
    """What one rank sends in an all-reduce of `n_bytes`: 2 (N - 1) / N of it."""
    return round(2 * (ranks - 1) / ranks * n_bytes)
