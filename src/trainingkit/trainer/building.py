"""The parts of a loop, built for a session: the synchroniser, the step engine, and what the page says of the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainingkit.sync.contract import Sync
from trainingkit.sync.control import ControlLane, peers_watched
from trainingkit.sync.doors import squeeze
from trainingkit.sync.plain import SingleProcess, wrap
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import Rate, StepEngine
from trainingkit.trainer.phases import PhaseClock
from trainingkit.trainer.recipe import KitConfig
from trainingkit.trainer.session import Session


def make_sync(model: nn.Module, session: Session, config: KitConfig) -> Sync:
    """The synchroniser for this number of ranks. Collective: the ranks compare the model's shape."""
    if session.group is None or session.world_size == 1:
        return SingleProcess(model)
    with peers_watched():
        ddp = wrap(model, session.group, bucket_mb=config.sync.bucket_mb)
        section = config.sync
        return squeeze(
            ddp,
            section.codec,
            warmup_steps=section.warmup_steps,
            timeout_s=section.timeout_s,
            normalise=section.normalise,
        )


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
        control=ControlLane(session.control_group, width=1),
        clock=clock,
        buffers=buffers,
        compute=session.compute,
        device=session.device,
        accumulate=config.step.accumulate,
        clip_norm=config.step.clip_norm or None,
        max_aborts=config.step.max_aborts,
    )


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Facts about a model for the page."""
    parameters = list(model.parameters())
    return {
        "name": type(model).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
    }
