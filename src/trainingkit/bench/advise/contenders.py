"""The rungs of the ladder as contenders, each from its first step on as it is: no warm-up in another codec."""

from __future__ import annotations

from functools import partial

from torch import nn

from trainingkit.bench.contender import Builder, Contender, Setting, data_parallel, dense_bytes, ring_bytes
from trainingkit.bench.contenders.apart import of_text
from trainingkit.sync.auto.ladder import PLAIN, Rung
from trainingkit.sync.bucketsize import bucket_mb, trainable
from trainingkit.sync.doors import squeeze
from trainingkit.sync.every import parse_every


def of_rung(rung: Rung) -> Builder:
    """The builder of a rung's contender."""
    if rung.apart:
        return of_text(str(rung), parse_every(str(rung)))
    return _plain if rung.codec == PLAIN else partial(_squeezed, rung=rung)


def _plain(model: nn.Module, setting: Setting) -> Contender:
    """DDP in the buckets that every rung has here."""
    said = ring_bytes(dense_bytes(model), setting.ranks)
    ddp = data_parallel(model, setting.group, bucket_cap_mb=bucket_mb(trainable(model)), gradient_as_bucket_view=True)
    return Contender("plain DDP", ddp, finish=lambda: said)


def _squeezed(model: nn.Module, setting: Setting, *, rung: Rung) -> Contender:
    ddp = data_parallel(model, setting.group, bucket_cap_mb=bucket_mb(trainable(model)), gradient_as_bucket_view=True)
    sync = squeeze(ddp, rung.codec, timeout_s=setting.timeout_s, warmup_steps=0, normalise=rung.normalise)
    return Contender(str(rung), ddp, finish=lambda: sync.commit().wire_bytes, close=sync.close, sync=sync)
