"""Your own model, data and loop, with TrainingKit's step: records, snapshots, signals and a page.

    python examples/own_loop.py                              one process
    torchrun --standalone --nproc-per-node 2 examples/own_loop.py         two; start it again and it continues

A small recurrent network learns to spell like Python's own documentation, byte by byte.
"""

import pydoc
import re
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import trainingkit as tk

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "runs/own-loop"
NAMES = ("argparse", "collections", "datetime", "inspect", "json", "logging", "pathlib", "random", "re", "string")


class Speller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(256, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(text))[0])


def loss_fn(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:])


pages = "".join(pydoc.render_doc(name, renderer=pydoc.plaintext) for name in NAMES)
text = re.sub("0x[0-9a-f]+", "0x", pages).encode()  # addresses differ from process to process
windows = torch.frombuffer(bytearray(text[: len(text) // 64 * 64]), dtype=torch.uint8).long().view(-1, 64)

torch.manual_seed(0)
model = Speller()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
settings = {
    "run": {"steps": 40, "threads": 1, "folder": FOLDER},
    "snapshot": {"every": 10},
    "sync": {"codec": "all|int4(block=64)"},  # one that stays: a resumed run then has the same losses, bit for bit
}
with tk.attach(model, optimizer, settings) as kit:
    sampler = DistributedSampler(windows, kit.world_size, kit.rank)  # type: ignore[arg-type]
    for batch in kit.batches(DataLoader(windows, batch_size=16, sampler=sampler, drop_last=True)):  # type: ignore[arg-type]
        kit.step(loss_fn, batch)
sys.exit(kit.exit_code)
