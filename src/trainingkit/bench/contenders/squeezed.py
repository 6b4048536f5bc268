"""Ours: `trainingkit.compress` on a DDP model with buckets of 2 MB, the one line that a script of one's own adds."""

from __future__ import annotations

from torch import nn

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel
from trainingkit.sync.doors import squeeze
from trainingkit.sync.section import SyncSection


@CONTENDERS.register("squeezed")
def build(model: nn.Module, setting: Setting) -> Contender:
    """The model in DDP, squeezed by the setting's codec; DDP orders its buckets by the gradients during warm-up."""
    ddp = data_parallel(model, setting.group, bucket_cap_mb=SyncSection().bucket_mb, gradient_as_bucket_view=True)
    sync = squeeze(ddp, setting.codec, timeout_s=setting.timeout_s)
    close = getattr(sync, "close", lambda: None)
    return Contender(f"TrainingKit {setting.codec}", ddp, finish=lambda: sync.commit().wire_bytes, close=close)
