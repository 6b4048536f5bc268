"""No communication at all: the limit that no exchange can beat. Each rank trains by itself (DDP's `no_sync`)."""

from __future__ import annotations

from torch import nn

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel


@CONTENDERS.register("none")
def build(model: nn.Module, setting: Setting) -> Contender:
    """The model in DDP that never exchanges."""
    ddp = data_parallel(model, setting.group)
    return Contender("no communication", ddp, backward=ddp.no_sync, agrees=False)
