"""The parts of a loop, built for a session: the synchroniser, the step engine, and what the page says of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainingkit.cluster.islands import FEWEST_RANKS
from trainingkit.core import decisions
from trainingkit.sync.bucketsize import bucket_mb, trainable
from trainingkit.sync.contract import Sync
from trainingkit.sync.control import ControlLane, peers_watched
from trainingkit.sync.doors import shared_by, squeeze
from trainingkit.sync.every import trains_apart
from trainingkit.sync.every.door import train_apart
from trainingkit.sync.listening import loss_teller
from trainingkit.sync.piloting import AutoSettings
from trainingkit.sync.plain import SingleProcess, wrap
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.cadence import ASKED
from trainingkit.trainer.engine import Rate, StepEngine
from trainingkit.trainer.phases import PhaseClock
from trainingkit.trainer.recipe import KitConfig
from trainingkit.trainer.session import Session


def make_sync(model: nn.Module, optimizer: torch.optim.Optimizer, session: Session, config: KitConfig) -> Sync:
    """The synchroniser for this number of ranks. Collective: the ranks compare the model's shape."""
    if trains_apart(config.sync.codec):
        apart = _make_apart(model, optimizer, session, config)
        _keep_islands(apart, session)
        return apart
    if session.group is None or session.world_size == 1:
        return SingleProcess(model)
    with peers_watched():
        ddp = wrap(model, session.group, bucket_mb=config.sync.bucket_mb)
        section = config.sync
        sync = squeeze(
            ddp,
            section.codec,
            warmup_steps=section.warmup_steps,
            timeout_s=section.timeout_s,
            normalise=section.normalise,
            adaptive=section.adaptive,
            islands=section.islands,
            optimizer=optimizer,
            auto=AutoSettings(
                max_ratio=section.max_ratio,
                min_density=section.min_density,
                max_every=section.max_every,
                replay=Path(section.replay) if section.replay else None,
                shared=shared_by(model),
            ),
        )
    _keep_islands(sync, session)
    return sync


def _make_apart(model: nn.Module, optimizer: torch.optim.Optimizer, session: Session, config: KitConfig) -> Sync:
    section = config.sync
    with peers_watched():
        return train_apart(
            model,
            optimizer,
            section.codec,
            group=session.group,
            warmup_steps=section.warmup_steps,
            normalise=section.normalise,
            adaptive=section.adaptive,
            timeout_s=section.timeout_s,
            islands=section.islands,
            parcel_mb=bucket_mb(trainable(model), section.bucket_mb),
        )


def _keep_islands(sync: Sync, session: Session) -> None:
    """Which ranks were found to be near each other, and why, among the run's decisions; few ranks have no choice."""
    facts = sync.describe()
    if session.place.rank == 0 and session.world_size >= FEWEST_RANKS and "islands" in facts:
        value, reason = facts["islands"], facts["islands_reason"]
        with session.run.written():
            decisions.record(session.run.decisions, step=0, choice="islands", value=value, reason=reason)


def make_engine(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    session: Session,
    config: KitConfig,
    *,
    sync: Sync,
    rate: Rate | None,
    clock: PhaseClock,
    buffers: ModelBuffers,
) -> StepEngine:
    """The step engine by the sections [step] and what the session found."""
    return StepEngine(
        sync=sync,
        model=model,
        optimizer=optimizer,
        rate=rate,
        control=ControlLane(session.control_group, width=ASKED),
        clock=clock,
        buffers=buffers,
        compute=session.compute,
        device=session.device,
        accumulate=config.step.accumulate,
        clip_norm=config.step.clip_norm or None,
        max_aborts=config.step.max_aborts,
        tell_loss=loss_teller(sync),
    )


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Facts about a model for the page."""
    parameters = list(model.parameters())
    return {
        "name": type(model).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
    }
