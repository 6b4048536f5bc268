"""Ours: `trainingkit.compress` on a DDP model with buckets of 2 MB, the one line that a script of one's own adds."""

from __future__ import annotations

import contextlib
from functools import partial

from torch import nn

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel
from trainingkit.sync.bucketsize import bucket_mb, trainable
from trainingkit.sync.doors import squeeze
from trainingkit.sync.going.switch import Going
from trainingkit.sync.piloting import AutoSettings
from trainingkit.sync.section import AUTO_CODEC


@CONTENDERS.register("squeezed")
def build(model: nn.Module, setting: Setting) -> Contender:
    """The model in DDP, squeezed by the setting's codec; DDP orders its buckets by the gradients during warm-up."""
    auto = AutoSettings(max_every=setting.max_every) if setting.codec == AUTO_CODEC else None
    return squeezed(model, setting, codec=setting.codec, normalise=False, auto=auto)


def squeezed(
    model: nn.Module, setting: Setting, *, codec: str, normalise: bool, auto: AutoSettings | None = None
) -> Contender:
    """The same with any codec."""
    ddp = data_parallel(model, setting.group, bucket_cap_mb=bucket_mb(trainable(model)), gradient_as_bucket_view=True)
    sync = squeeze(ddp, codec, timeout_s=setting.timeout_s, normalise=normalise, auto=auto, optimizer=setting.optimizer)
    going = sync if isinstance(sync, Going) else None
    label = f"TrainingKit {codec}" + (", normalised" if normalise else "")
    return Contender(
        label,
        ddp,
        finish=lambda: sync.commit().wire_bytes,
        close=sync.close,
        sync=sync,
        settled=lambda: bool(sync.describe().get("settled", True)),
        searches=codec == AUTO_CODEC,
        rhythm=going.rhythm if going is not None else None,
        rest=going.rest if going is not None else lambda: None,
        agreed=going.agreed_weights if going is not None else contextlib.nullcontext,
        told=lambda: f"TrainingKit {sync.describe()['name']}" if codec == AUTO_CODEC else label,
    )


def of_codec(codec: str, *, normalise: bool) -> partial[Contender]:
    """A builder for one codec beside the judged one."""
    return partial(squeezed, codec=codec, normalise=normalise)
