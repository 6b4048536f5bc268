"""Ours: ranks that train on their own for H steps, as `trainingkit.compress` with every(H) does in a script."""

from __future__ import annotations

import contextlib
from functools import partial

from torch import nn

from trainingkit.bench.contender import Contender, Setting
from trainingkit.core.errors import ConfigError
from trainingkit.sync.contract import TrainsApart
from trainingkit.sync.every import Every, EverySpec
from trainingkit.sync.every.door import train_apart


def of_text(text: str, spec: EverySpec) -> partial[Contender]:
    """A builder for ranks that train apart.

    Args:
        text: what the table calls it.
    """
    return partial(_build, text=text, spec=spec)


def quiet_step(every: Every) -> int:
    """After how many steps of a cycle of H no round is on its way: where a turn may begin and end.

    A turn that ended while a round flies would leave it to the wire of the next contender's turn.

    Raises:
        ConfigError: there is always one on its way.
    """
    flying = {
        (every.offset(fragment) + late) % every.steps
        for fragment in range(every.fragments)
        for late in range(every.lag)
    }
    quiet = [step for step in range(every.steps) if step not in flying]
    if not quiet:
        raise ConfigError(
            "A contender that always has a round on its way cannot take turns with others.",
            field="--contenders",
            found=f"a round that is applied {every.lag} steps after its start, one every {every.steps} steps",
            expected=f"tau of at most {every.steps - 1}, without a delay, in one fragment",
            next_step=f"Time it with tau={every.steps - 1}.",
        )
    return quiet[0]


def _build(model: nn.Module, setting: Setting, *, text: str, spec: EverySpec) -> Contender:
    sync = train_apart(model, setting.optimizer, spec, group=setting.group, timeout_s=setting.timeout_s)
    apart = sync if isinstance(sync, TrainsApart) else None
    return Contender(
        f"TrainingKit {text}",
        model,
        finish=lambda: sync.commit().wire_bytes,
        close=sync.close,
        sync=sync,
        period=spec.every.steps,
        lead=lambda: quiet_step(spec.every),
        agreed=apart.agreed_weights if apart is not None else contextlib.nullcontext,
    )
