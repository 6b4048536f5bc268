"""DDP with bf16 on the wire. PyTorch's own `bf16_compress_hook` refuses Gloo; Gloo itself sums bf16 well enough."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel, dense_bytes, ring_bytes


@CONTENDERS.register("bf16")
def build(model: nn.Module, setting: Setting) -> Contender:
    """The model in DDP with a hook that casts, all-reduces and casts back."""
    ddp = data_parallel(model, setting.group)
    ddp.register_comm_hook(setting.group, _hook)
    said = ring_bytes(dense_bytes(model) / 2, setting.ranks)
    return Contender("DDP, bf16 wire", ddp, finish=lambda: said)


def _hook(group, bucket):  # no annotations: DDP compares them with its types, and ours are texts
    buffer = bucket.buffer()
    wire = buffer.mul(1.0 / dist.get_world_size(group)).to(torch.bfloat16)
    work = dist.all_reduce(wire, group=group, async_op=True)
    assert work is not None

    def put_back(done: Future[list[torch.Tensor]]) -> torch.Tensor:
        return buffer.copy_(done.value()[0])

    return work.get_future().then(put_back)
