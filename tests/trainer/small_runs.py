"""Small trainings through `Kit`, alone or on a rank of the pool: what is trained, how it is stopped, what came out."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ranks import Context
from trainingkit.cluster.place import ALONE, Place
from trainingkit.core.records import RecordWriter, StartRecord, latest_steps, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.recipe import KitConfig, load_kit_config
from trainingkit.trainer.session import Session

FEATURES = 6
assert RecordWriter


def config(**sections: Mapping[str, Any]) -> KitConfig:
    """Plain DDP, a snapshot only at the end, whatever else `sections` say."""
    table: dict[str, Any] = {"sync": {"codec": "none"}, "snapshot": {"every": 0}, **sections}
    return load_kit_config(table)


def open_alone(folder: Path) -> Session:
    """A session of one process, without a group."""
    return _session(ALONE, None, folder)


def open_rank(context: Context, folder: Path) -> Session:
    """A session over the pool's own group, with lanes of its own."""
    if context.world_size == 1:
        return open_alone(folder)
    place = Place(context.rank, context.world_size, context.rank, context.world_size, "torchrun")
    return _session(place, context.group, folder)


def _session(place: Place, group: Any, folder: Path) -> Session:
    run = RunFolder(folder)
    run.create()
    lanes = [dist.new_group(backend="gloo") if group is not None else None for _ in range(2)]
    return Session(
        place=place,
        group=group,
        control_group=lanes[0],
        snapshot_group=lanes[1],
        device=torch.device("cpu"),
        compute="fp32",
        threads=1,
        run=run,
        attempt=1 + len(starts(folder, 0)),
    )


def starts(folder: Path, rank: int) -> list[StartRecord]:
    """The start records that a rank has left."""
    records, _ = read_records(RunFolder(folder).metrics(rank))
    return [record for record in records if isinstance(record, StartRecord)]


def losses(folder: Path, rank: int = 0) -> dict[int, float | None]:
    """Loss by step from a rank's records; a step that was run twice counts once, with its later attempt."""
    records, bad = read_records(RunFolder(folder).metrics(rank))
    assert bad == 0
    return {record.step: record.loss for record in latest_steps(records)}


def events(folder: Path, rank: int = 0) -> list[tuple[int, str, str]]:
    """(step, event, text) of a rank's event records."""
    records, _ = read_records(RunFolder(folder).metrics(rank))
    return [(r.step, r.event, r.text) for r in records if hasattr(r, "event")]  # type: ignore[union-attr]


class Net(nn.Module):
    """Linear, batch norm and dropout, so that buffers and random numbers count."""

    def __init__(self, dropout: float = 0.3, *, norm: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 16),
            nn.BatchNorm1d(16) if norm else nn.Identity(),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(16, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def loss_fn(model: Any, batch: Any) -> torch.Tensor:
    """Cross-entropy of a (features, label) batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def samples(count: int = 48, seed: int = 5) -> torch.utils.data.TensorDataset:
    """Labelled points; the same every time."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).long())


def batches(count: int, size: int = 4, *, rank: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A list of batches, other ones for each rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for _ in range(count):
        x = torch.randn(size, FEATURES, generator=generator)
        made.append((x, (x.sum(dim=1) > 0).long()))
    return made


def shuffled(rank: int, world_size: int) -> Iterable[Any]:
    """torch's own loader, shuffling by the global generator; each rank has its own part of the data."""
    data = samples()
    part = torch.utils.data.Subset(data, range(rank, len(data), world_size))
    return torch.utils.data.DataLoader(part, batch_size=4, shuffle=True, drop_last=True)


def listed(rank: int, world_size: int) -> Iterable[Any]:
    """A plain list of seven batches."""
    return batches(7, rank=rank)


class Counting:
    """A loader with a state of its own: endless, batch by number."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.number += 1
            yield batches(1, rank=1000 * self.rank + self.number)[0]

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.number = state_dict["number"]


def counting(rank: int, world_size: int) -> Iterable[Any]:
    """See Counting."""
    return Counting(rank)


LOADERS: dict[str, Callable[[int, int], Iterable[Any]]] = {
    "shuffled": shuffled,
    "listed": listed,
    "counting": counting,
}


def digest(value: Any) -> str:
    """A hash over every bit of nested dicts, lists, tensors and plain values."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        found.update(str(value.dtype).encode() + value.detach().contiguous().numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            found.update(str(key).encode())
            _feed(found, value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _feed(found, item)
    else:
        found.update(repr(value).encode())


def train(
    session: Session,
    settings: KitConfig,
    *,
    loader: str,
    stop_at: int | None = None,
    stop_rank: int = 0,
    dropout: float = 0.3,
    norm: bool = True,
) -> dict[str, Any]:
    """Train Net by AdamW with a schedule of torch's; `stop_rank` sends itself SIGTERM in step `stop_at`.

    Returns:
        Hashes of the model with its buffers, of the optimizer, of the schedule and of torch's generator; the step.
    """
    torch.manual_seed(1)
    model = Net(dropout, norm=norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    torch.manual_seed(2 + session.rank)
    with Kit(session, model, optimizer, settings, rate=rate) as kit:
        for batch in kit.batches(LOADERS[loader](session.rank, session.world_size)):
            if kit.step_number + 1 == stop_at and session.rank == stop_rank and kit._engine.between_steps:
                os.kill(os.getpid(), signal.SIGTERM)
            kit.step(loss_fn, batch)
    return {
        "model": digest(model.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "rate": digest(rate.state_dict()),
        "random": digest(torch.get_rng_state()),
        "step": kit.step_number,
        "exit_code": kit.exit_code,
    }


def train_rank(context: Context, folder: str, settings: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """`train` on a rank of the pool."""
    return train(open_rank(context, Path(folder)), config(**settings), **options)
