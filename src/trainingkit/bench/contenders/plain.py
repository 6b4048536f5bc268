"""PyTorch's DistributedDataParallel as it comes: fp32 on the wire, buckets of 25 MB."""

from __future__ import annotations

from torch import nn

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel, dense_bytes, ring_bytes


@CONTENDERS.register("plain")
def build(model: nn.Module, setting: Setting) -> Contender:
    """The model in DDP with its defaults."""
    said = ring_bytes(dense_bytes(model), setting.ranks)
    return Contender("plain DDP, fp32 wire", data_parallel(model, setting.group), finish=lambda: said)
