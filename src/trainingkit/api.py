"""The names people type in Python. Beside `cli`, the only place that joins rooms that may not know each other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainingkit.core import outcome
from trainingkit.core.errors import TrainingKitError
from trainingkit.core.logging import LOG
from trainingkit.core.runfolder import RunFolder
from trainingkit.planner import plan
from trainingkit.sync.contract import Sync
from trainingkit.sync.doors import squeeze
from trainingkit.sync.every import trains_apart
from trainingkit.sync.every.door import follow_script
from trainingkit.sync.section import AUTO_CODEC
from trainingkit.trainer.exempted import nothing_squeezed
from trainingkit.trainer.fit import Trainer
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.recipe import KitConfig, load_kit_config
from trainingkit.trainer.session import open_session

__all__ = ["Trainer", "attach", "compress", "plan"]

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from trainingkit.trainer.engine import Rate


def compress(
    model: nn.Module,
    codec: str = AUTO_CODEC,
    *,
    warmup_steps: int | None = None,
    timeout_s: float = 300.0,
    normalise: bool = False,
    optimizer: Optimizer | None = None,
) -> Sync:
    """Squeeze the gradients of a DDP model: one line on a script that exists. All ranks call it once.

    Nothing else in the script changes. Keep the result in your checkpoints (`state_dict`, `load_state_dict`), tell it a
    GradScaler (`sync.scaler = scaler`), and look at `sync.stats()`.

    Args:
        model: in DistributedDataParallel, before its first forward.
        codec: "auto" (the least lossy of a ladder of codecs that hides behind backward on this link; plain DDP where
            that is as fast), or one that stays: "all|int4(block=64)" (about a seventh of the bytes),
            "topk(density=0.05, chunk=4096)|int4" (about a fortieth), or "none" (plain DDP). Embeddings and the head
            travel in bf16, so a model with a big vocabulary keeps more: a quarter where they are a third of it.
        warmup_steps: steps that travel in 8 bits first; default: 40 for a codec that selects, 10 for a normalised one
            of at most 3 bits, else none.
        timeout_s: deadline of one collective, in seconds.
        normalise: divide matrices by the root of their agreed second moment before coding, so that coarse codecs lose
            less. It costs 8 bytes of memory a parameter.
        optimizer: over the model's parameters; needed where they and not gradients travel, as with "every(4)|all|int4":
            each rank then trains on its own, and each fourth `optimizer.step()` exchanges what has changed.

    Returns:
        The synchroniser: `state_dict`, `load_state_dict`, `detach`, `stats`.

    Raises:
        ConfigError: the model or the codec cannot be used, with what would be.

    A model in which the codec finds nothing to squeeze is named in a warning of the log.

    Example:
        model = DistributedDataParallel(model)
        sync = trainingkit.compress(model, "all|int4(block=64)")
    """
    if trains_apart(codec):
        settings: dict[str, Any] = {"warmup_steps": warmup_steps, "timeout_s": timeout_s, "normalise": normalise}
        sync = follow_script(model, optimizer, codec, **settings)
    else:
        sync = squeeze(model, codec, warmup_steps=warmup_steps, timeout_s=timeout_s, normalise=normalise)
    nothing = nothing_squeezed(sync, model)
    if nothing and torch.distributed.get_rank() == 0:
        LOG.warning("%s", nothing)
    return sync


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    config: str | Path | Mapping[str, Any] | KitConfig | None = None,
    *,
    scheduler: Rate | None = None,
) -> Kit:
    """The trainer's loop inside your own script: transaction, records, snapshots, signals, page.

    Run the script alone, or on several ranks with torchrun or srun; each rank then needs a part of the data of its own
    (`DistributedSampler(data, kit.world_size, kit.rank)`). Where `run.folder` names a folder that holds snapshots, the
    run continues from the newest. Epochs are counted over a resume by `kit.epochs`, not by a `range` of your own.

    Args:
        model: any module; use `kit.model` in the loss function.
        optimizer: over the model's parameters.
        config: a TOML file, a mapping, or None for the defaults (see docs/recipes.md).
        scheduler: a learning-rate scheduler; the kit steps it once per committed step.

    Returns:
        The kit. Use it as a context manager, or call `kit.close()` at the end.

    Raises:
        ConfigError, ClusterError, RunFolderError, CheckpointError: each with what to do next.

    Example:
        with tk.attach(model, optimizer, {"run": {"steps": 100}}) as kit:
            for batch in kit.batches(loader):
                kit.step(lambda model, batch: loss(model(batch[0]), batch[1]), batch)
    """
    settings = load_kit_config(config)
    session = open_session(settings)
    try:
        return Kit(session, model.to(session.device), optimizer, settings, rate=scheduler, on_close=_write_page)
    except BaseException as error:
        outcome.leave_failure(session.run, session.rank, 0, error)
        session.on_close()
        raise


def _write_page(run: RunFolder) -> None:
    """The run's page. That it cannot be written is a warning: the training itself went well."""
    from trainingkit.report import write

    try:
        write(run)
    except (TrainingKitError, OSError) as error:
        warnings.warn(str(error), stacklevel=2)
