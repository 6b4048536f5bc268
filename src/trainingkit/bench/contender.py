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
from torch.optim import Optimizer

from trainingkit.codec import parse
from trainingkit.core.registry import Registry
from trainingkit.sync.contract import Sync
from trainingkit.sync.every import parse_every, trains_apart
from trainingkit.sync.every.presets import PRESETS


@dataclass(frozen=True)
class Setting:
    """What the builders of contenders may use.

    Args:
        group: a Gloo group over all ranks that only this contender uses, so that its failure is its own.
        codec: what the contender "squeezed" sends.
        timeout_s: deadline of one collective.
        optimizer: over the model's parameters.
        max_every: with codec "auto": steps that ranks may at most train apart; None: as the controller decides.
    """

    group: dist.ProcessGroup
    codec: str
    timeout_s: float
    optimizer: Optimizer
    max_every: int | None = None

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
        period: steps from one exchange to the next; a turn takes whole periods.
        lead: steps into a period after which nothing is on its way: where a turn begins.
        rhythm: its period and the steps until a turn may begin, where these change; else `period`, which is kept.
        rest: waits, at a turn's end, for what is on its way yet.
        agreed: the model that all ranks agreed on in place of this rank's own, to evaluate it.
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
    period: int = 1
    lead: Callable[[], int] = lambda: 0
    rhythm: Callable[[], tuple[int, int]] | None = None
    rest: Callable[[], None] = lambda: None
    agreed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext


Builder = Callable[[nn.Module, Setting], Contender]
CONTENDERS: Registry[Builder] = Registry("contender", "trainingkit.bench.contenders")
"""Entries: builders. All ranks build the same contenders in the same order."""


BAR = "|"
"""In a codec's name; a contender's own has none."""
NORMALISED = "+normalised"
"""At the end of a codec that is a contender by itself."""


def builder_of(name: str) -> Builder:
    """The builder of a contender: a registered one, or one for a codec or for training apart.

    Args:
        name: without an optimizer (`bench.naming`), for example "plain", "all|int8(block=64)",
            "all|int3(block=64)+normalised", "every(4)|all|int4" or "sparseloco".

    Raises:
        ConfigError: there is none of that name, or the codec cannot be read.
    """
    if name in CONTENDERS.names():
        return CONTENDERS.get(name)
    if name in PRESETS.names() or (BAR in name and trains_apart(name, field="--contenders")):
        from trainingkit.bench.contenders.apart import of_text

        return of_text(name, parse_every(name, field="--contenders"))
    if BAR not in name:
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
