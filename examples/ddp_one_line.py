"""A plain PyTorch DDP script; with --compress the same and one line more.

    torchrun --nproc-per-node 2 examples/ddp_one_line.py
    torchrun --nproc-per-node 2 examples/ddp_one_line.py --compress

It learns to write Python, byte by byte, from the source of Python's own standard library.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import trainingkit

WIDTH, WINDOW, BATCH = 128, 64, 16


class ByteModel(nn.Module):
    """A small recurrent network that foretells the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.cell = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.embed(text))[0])


def load_text() -> torch.Tensor:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(bytearray(b"\0".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compress", action="store_true")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(ByteModel())
    sync = trainingkit.compress(model, "all|int4(block=64)") if options.compress else None  # the one line

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = load_text()
    torch.manual_seed(1 + rank)
    for step in range(1, options.steps + 1):
        starts = torch.randint(len(text) - WINDOW - 1, (BATCH,))
        batch = torch.stack([text[start : start + WINDOW + 1] for start in starts])
        scores = model(batch[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step {step}  loss {loss.item():.4f}", flush=True)

    if rank == 0:
        ranks = dist.get_world_size()
        plain = round(2 * (ranks - 1) / ranks * sum(4 * p.numel() for p in model.parameters()))
        sent = sync.stats()["sent_bytes"] // options.steps if sync else plain
        print(f"bytes per step: {sent} (plain DDP: {plain})", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
