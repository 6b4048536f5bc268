"""A model in which a codec finds nothing to squeeze is named: in a script's log, and in a run's events."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from small_runs import Net, batches, config, events, loss_fn, open_rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainingkit as tk
from ranks import Context, Pool
from trainingkit.trainer.exempted import TEXT
from trainingkit.trainer.kit import Kit


class Heard(logging.Handler):
    """Keeps the texts of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def warned(context: Context, width: int, codec: str, frozen: bool) -> list[str]:
    """What `compress` writes to the log for a model of two matrices, of which the first may be frozen."""
    heard, log = Heard(), logging.getLogger("trainingkit")
    log.addHandler(heard)
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 2))
    model[0].requires_grad_(not frozen)
    try:
        sync = tk.compress(DistributedDataParallel(model), codec)  # type: ignore[arg-type]
        sync.close()
    finally:
        log.removeHandler(heard)
    return [text for text in heard.texts if text == TEXT]


def test_compress_says_when_there_is_nothing_to_squeeze(pool: Pool) -> None:
    int4 = "all|int4"
    assert pool.run(warned, 2, 8, int4, False) == [[TEXT], []], "on rank 0 only"
    assert pool.run(warned, 2, 64, int4, True) == [[TEXT], []], "what is frozen has no gradient to squeeze"
    assert pool.run(warned, 2, 64, int4, False) == [[], []]
    assert pool.run(warned, 2, 8, "none", False) == [[], []]
    assert pool.run(warned, 1, 8, int4, False) == [[]]


def run_small(context: Context, folder: str) -> None:
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = config(sync={"codec": "all|int4"})
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(batches(2, rank=context.rank)):
            kit.step(loss_fn, batch)


def test_a_run_says_so_among_its_events(pool: Pool, tmp_path: Path) -> None:
    pool.run(run_small, 2, str(tmp_path))
    assert (0, "codec", TEXT) in events(tmp_path)
