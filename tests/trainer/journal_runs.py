"""Trainings with a journal on ranks of the pool: killed at once, resumed, compared with one that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
from small_runs import FEATURES, config, digest, loss_fn, open_rank
from torch import nn

from ranks import Context
from trainingkit.core.errors import CheckpointError
from trainingkit.recovery import snapshots
from trainingkit.recovery.journal import slots
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.listening import of_gradients
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.recipe import KitConfig
from trainingkit.trainer.rng import seed_all

STEPS = 24
INT4 = "all|int4(block=64)"
State = dict[str, Any]


class Wide(nn.Module):
    """Matrices that are squeezed, batch norm and dropout, so that messages, buffers and random numbers count."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 96),
            nn.BatchNorm1d(96),
            nn.Tanh(),
            nn.Linear(96, 96),
            nn.Dropout(0.2),
            nn.Tanh(),
            nn.Linear(96, 64),
            nn.Linear(64, 3),
        )
        self.register_buffer("nothing", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def uneven(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Seven batches of different sizes, so that weights count."""
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for index in range(7):
        x = torch.randn(3 + (rank + index) % 3, FEATURES, generator=generator)
        made.append((x, (x.sum(dim=1) > 0).long()))
    return made


def settings_of(sync: State, **other: Any) -> KitConfig:
    table = {"run": {"steps": STEPS}, "snapshot": {"every": 8, "keep": 2}, "journal": {"steps": "squeezed"}, **other}
    return config(sync={"codec": INT4, "bucket_mb": 0.02, **sync}, **table)


def state_of(kit: Kit, optimizer: torch.optim.Optimizer, rate: Any) -> State:
    """Everything that a replay must bring back, as hashes."""
    sync = kit._engine.sync
    gradients = of_gradients(sync)
    if isinstance(sync, EverySync):
        agreed = sync.state_dict()["agreed"]
        return {
            "agreed": digest({**agreed["parameters"], **{f"momentum {n}": m for n, m in agreed["momentum"].items()}}),
            "rate": digest(rate.state_dict()),
            "random": digest(torch.get_rng_state()),
            "progress": {"steps": sync.steps},
            "passes": digest(kit._passes.state_dict()),
        }
    return {
        "model": digest(kit._module.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "rate": digest(rate.state_dict()),
        "random": digest(torch.get_rng_state()),
        "progress": gradients.progress() if gradients is not None else None,
        "passes": digest(kit._passes.state_dict()),
    }


def train(
    context: Context, folder: str, sync: State, kill: tuple[int, float] | None, options: State
) -> tuple[dict[int, State], State]:
    """Train; the state after each step, and the one that the run began with.

    Args:
        kill: a step, and how many seconds after it every rank dies.
        options: sections over the settings; `spoil` makes that step's gradient infinite on rank 1; `only` ends with
            the state that the run begins with; `own_rate` sets the learning rate in the loop, before each step, and
            `own_groups` weight decay and betas; `strange` takes that step with a setting that is a function without a
            name; `older` writes the journal as an earlier version did; `meddles` (step, part) changes parameters or
            the optimizer's state after that step; `held` lets no snapshot come to its end; `noted` appends a hash of
            each step's state to a file of the rank's, and takes no step more before it dies; `waits` waits for
            snapshots.
    """
    spoil, only = options.pop("spoil", None), options.pop("only", False)
    own_rate, own_groups = options.pop("own_rate", False), options.pop("own_groups", False)
    noted, waits = options.pop("noted", False), options.pop("waits", False)
    strange, older = options.pop("strange", None), options.pop("older", False)
    meddles = options.pop("meddles", None)
    if options.pop("held", False):
        snapshots.write_snapshot = lambda target, job: threading.Event().wait()
    seed_all(1)
    model = Wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.7)
    seed_all(2 + context.rank)
    states: dict[int, State] = {}
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings_of(sync, **options), rate=rate) as kit:
        if older and kit.journal is not None:
            travelled: Any = kit.journal._travelled
            travelled._shared = _without_groups(travelled._shared)
        begun = {"step": kit.step_number, **state_of(kit, optimizer, rate)}
        for batch in kit.batches(uneven(context.rank)) if not only else ():
            if own_rate:
                optimizer.param_groups[0]["lr"] = 0.02 / (1 + kit.step_number)
            if own_groups:
                other = {"weight_decay": 0.05 * (1 + kit.step_number), "betas": (0.9 / (1 + kit.step_number), 0.99)}
                optimizer.param_groups[0].update(other)
            if strange == kit.step_number + 1:
                optimizer.param_groups[0]["other"] = lambda: None
            spoiled = spoil == kit.step_number + 1 and context.rank == 1
            kit.step(loss_fn, (batch[0] * float("inf"), batch[1]) if spoiled else batch)
            optimizer.param_groups[0].pop("other", None)
            states[kit.step_number] = state_of(kit, optimizer, rate)
            if meddles is not None and meddles[0] == kit.step_number:
                MEDDLING[meddles[1]](model, optimizer)
            if noted:
                note(Path(folder), context.rank, kit.step_number, states[kit.step_number])
            if waits:
                kit._keeper._snapshots.wait()
            if kill is not None and kit.step_number == kill[0]:
                threading.Thread(target=_die, args=kill[1:], daemon=True).start()
                if noted:
                    threading.Event().wait()
        written = kit.journal.written_bytes if kit.journal else 0
    kit._engine.sync.close()
    return states, {**begun, "written": written}


def _clamp(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.05, 0.05)


MEDDLING = {"parameters": _clamp, "the optimizer's state": lambda _, optimizer: optimizer.state.clear()}


def _without_groups(shared: Any) -> Any:
    return lambda *args, **how: {name: value for name, value in shared(*args, **how).items() if name != "groups"}


def saved_twice(context: Context, folder: str) -> tuple[list[str], list[int]]:
    """Save again after the step of the last snapshot; what the journal says of it, and where its segments begin."""
    model = Wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings_of({}, run={"steps": 8})) as kit:
        for batch in kit.batches(uneven(context.rank)):
            kit.step(loss_fn, batch)
        assert kit.journal is not None
        kit._saving.save(kit.step_number, wait=True)
        said = kit.journal._writer.problems()
        found = [slot.first_step for slot in slots(kit.session.run.journal) if slot.rank == context.rank]
    return said, found


def note(folder: Path, rank: int, step: int, state: State) -> None:
    """Append a line about a step."""
    with open(folder / f"noted-{rank}.jsonl", "a", encoding="utf-8") as handle:
        handle.write(json.dumps([step, digest(state)]) + "\n")


def noted_last(folder: Path, rank: int) -> dict[int, str]:
    """Hash of the state by step, the newest of each."""
    lines = (folder / f"noted-{rank}.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line) for line in lines)


def refused(context: Context, folder: str, codec: str) -> str:
    """Resume with an optimizer that fails on rank 1 alone; what each rank is told."""
    model = Wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.7)
    if context.rank == 1:
        optimizer.register_step_pre_hook(_fails)
    try:
        Kit(open_rank(context, Path(folder)), model, optimizer, settings_of({"codec": codec}), rate=rate)
    except CheckpointError as error:
        return str(error).splitlines()[0]
    return "resumed"


def _fails(*_: Any) -> None:
    raise ValueError("this rank's own trouble")


def _die(after_s: float) -> None:
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGKILL)
