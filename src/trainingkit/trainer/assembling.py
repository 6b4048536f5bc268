"""The parts of a loop put together, and the state that they go on with: a new run's, a snapshot's, or a replay's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError
from trainingkit.core.files import write_atomic
from trainingkit.recovery.together import agree
from trainingkit.recovery.writing import told
from trainingkit.sync.contract import Sync
from trainingkit.sync.control import peers_watched
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.building import make_engine, make_sync
from trainingkit.trainer.changes import Change, changes_of_script, note
from trainingkit.trainer.datamark import told_of_data
from trainingkit.trainer.engine import Rate, StepEngine
from trainingkit.trainer.journalling import Journalling, open_journal
from trainingkit.trainer.keeper import Keeper
from trainingkit.trainer.phases import PhaseClock
from trainingkit.trainer.probe import probe
from trainingkit.trainer.recipe import KitConfig, resolved_text
from trainingkit.trainer.replaying import Replayed, replay
from trainingkit.trainer.retaking import Loop
from trainingkit.trainer.seal import sealed
from trainingkit.trainer.session import Session

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Parts:
    """What takes, keeps and restores steps."""

    sync: Sync
    buffers: ModelBuffers
    engine: StepEngine
    keeper: Keeper
    journal: Journalling | None


@dataclass(frozen=True)
class Begun:
    """Where a loop goes on.

    Args:
        step: that is done.
        state: this rank's of the loop; None for a new run.
        replayed: what the journal added to a snapshot, or None.
    """

    step: int = 0
    state: dict[str, Any] | None = None
    replayed: Replayed | None = None


def assemble(
    session: Session,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: KitConfig,
    *,
    rate: Rate | None,
    clock: PhaseClock,
    say: Say,
) -> Parts:
    """The parts of a loop over one model and optimizer. All ranks call it.

    Args:
        say: told (event, text) of what a person should know.
    """
    sync = make_sync(model, optimizer, session, config)
    buffers = ModelBuffers(model, session.group)
    engine = make_engine(model, optimizer, session, config, sync=sync, rate=rate, clock=clock, buffers=buffers)
    keeper = Keeper(
        session,
        config.snapshot,
        model=model,
        optimizer=optimizer,
        rate=rate,
        sync=sync,
        seed=config.run.seed,
        say=say,
    )
    journal = open_journal(
        session,
        config.journal,
        sync=sync,
        model=model,
        buffers=buffers,
        clip_norm=config.step.clip_norm or None,
        say=say,
    )
    if journal is not None and journal.probes:
        engine.probe = lambda: probe(optimizer)
    return Parts(sync, buffers, engine, keeper, journal)


def go_on(
    session: Session, config: KitConfig, keeper: Keeper, loop: Loop, say: Say, *, data: DataInfo | None = None
) -> Begun:
    """Restore the newest whole snapshot and take the journal's steps after it; a new run keeps its recipe.

    All ranks call it. Settings or data that are not those of the run are said.

    Raises:
        ConfigError: a setting has changed that may not.
        CheckpointError: there are snapshots but none is whole, or the journal's steps are not those that were taken.
    """
    with peers_watched():
        restored = keeper.restore()
    if restored is None:
        if session.rank == 0:
            with session.run.written():
                write_atomic(session.run.recipe, sealed(resolved_text(config)))
        return Begun()
    step, state = restored
    _hear_of_changes(session, config, step, say)
    other = told_of_data(state, data)
    if other is not None:
        say("data", other)
    replayed = replay(session, loop, step, state, say)
    if replayed is None:
        return Begun(step, state)
    say("replay", replayed.text)
    return Begun(replayed.step, replayed.state, replayed)


def _hear_of_changes(session: Session, config: KitConfig, step: int, say: Say) -> None:
    """Rank 0 knows the folder; its judgement counts on all ranks. `trainingkit resume` has told its own before."""

    def judged() -> list[Change] | ConfigError:
        if session.rank != 0 or not session.run.recipe.exists():
            return []
        try:
            return changes_of_script(session.run, config)
        except ConfigError as error:
            return error

    found = agree(session.snapshot_group, judged, doing="comparing settings")[0]
    if isinstance(found, ConfigError):
        raise found
    for change in found:
        say("changed", f"Changed: {change}")

    def kept() -> None:
        with told(session.run.root, 0):
            note(session.run, found, step=step)
            write_atomic(session.run.recipe, sealed(resolved_text(config)))

    if found:
        agree(session.snapshot_group, kept if session.rank == 0 else lambda: None, doing="keeping changed settings")
