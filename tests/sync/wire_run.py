"""Four ranks on the loopback device of a network of their own: bytes by the kernel's counters, by ours, by formula.

Run as a program inside a fresh network namespace; prints one JSON object. The parent imports, then forks the ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainingkit.codec import message_bytes
from trainingkit.codec.size import granule
from trainingkit.core.datainfo import DataInfo
from trainingkit.exchange.header import HEADER_BYTES
from trainingkit.models.kinds.llama import LlamaSection
from trainingkit.sync.doors import EXEMPT_CODEC, squeeze
from trainingkit.sync.exempt import squeezed_names

RANKS = 4
STEPS = 2
CODECS = ("none", "all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4")
COUNTERS = Path("/proc/self/net/dev")
SENT_COLUMN = 8


def decoder() -> torch.nn.Module:
    """10.8 M parameters: 6 layers, width 384, bytes as tokens."""
    info = DataInfo("none", "language", "", "not stated", 1, 1, vocab_size=256, seq_len=16)
    section = LlamaSection(layers=6, hidden=384, feed_forward=1024, heads=6, kv_heads=6)
    torch.manual_seed(1)
    return section.build(info)


def by_formula(buckets: Sequence[Sequence[str]], sizes: dict[str, int], squeezed: set[str], codec: str) -> int:
    """What one rank sends in a step, from `codec.size` alone: 2 (N-1) messages of a shard for each bucket."""
    total = 0
    for names in buckets:
        message = HEADER_BYTES
        for spec, chosen in ((codec, squeezed), (EXEMPT_CODEC, set(sizes) - squeezed)):
            elements = sum(sizes[name] for name in names if name in chosen)
            if elements:
                step = granule(spec)
                shard = max(1, -(-elements // (step * RANKS))) * step
                message += message_bytes(spec, shard)
        total += 2 * (RANKS - 1) * message
    return total


def measure(rank: int, codec: str) -> dict[str, Any]:
    """Bytes of one step: all ranks' by the interface, this rank's by the synchroniser and by formula."""
    model = decoder()
    ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=2)
    sync: Any = squeeze(ddp, codec, warmup_steps=0)
    tokens = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(rank))
    counted = 0
    before = 0
    for step in range(STEPS + 1):
        if step == 1:
            before = _interface_bytes()
        sync.begin()
        ddp(input_ids=tokens, labels=tokens).loss.backward()
        counted = sync.commit().wire_bytes
    found = {"interface": (_interface_bytes() - before) / STEPS / RANKS, "counted": counted}
    if codec != "none":
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        found["formula"] = by_formula(list(sync._buckets._buckets), sizes, squeezed_names(model), codec)
        found["buckets"] = len(sync._buckets._buckets)
    found["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    sync.close()
    return found


def _interface_bytes() -> int:
    """Read while every rank stands still: all have come here, and none has left."""
    dist.barrier()
    lines = dict(line.split(":") for line in COUNTERS.read_text().splitlines()[2:])
    found = int({name.strip(): numbers.split() for name, numbers in lines.items()}["lo"][SENT_COLUMN])
    dist.barrier()
    return found


def rank_main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    found = {codec: measure(rank, codec) for codec in CODECS}
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()


def main(store: str) -> int:
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            code = 1
            try:
                rank_main(rank, store)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    decoder()  # imports what the ranks would import one by one
    sys.exit(main(sys.argv[1]))
