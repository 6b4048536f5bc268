"""One step of the journal again: its messages are decoded, clipped and applied, without forward or backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import Step, row_name
from trainingkit.recovery.names import inner
from trainingkit.sync.agreed import Agreed
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.contract import Sync
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.listening import of_gradients
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import Rate
from trainingkit.trainer.groups import set_settings
from trainingkit.trainer.probe import OPTIMIZER, PARAMETERS, probe
from trainingkit.trainer.session import Session

NORM_TOLERANCE = 1e-4
"""Of the norm: another number of threads may sum in another order. What is beyond is no rounding."""


@dataclass(frozen=True)
class Loop:
    """The parts of a loop that a replay moves."""

    sync: Sync
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rate: Rate | None
    buffers: ModelBuffers


def take(loop: Loop, step: Step, session: Session) -> None:
    """One step again: gradients, clip, update, schedule.

    Raises:
        CheckpointError: the gradients are not those that were applied, or the optimizer is not as it was.
    """
    if step.numbers["committed"]:
        _put_gradients(loop, step, session.world_size)
        _clip(loop.model, step)
        for group, lr in zip(loop.optimizer.param_groups, step.numbers["lrs"], strict=True):
            _set_rate(group, float.fromhex(lr))
        other = set_settings(loop.optimizer, list(step.shared["groups"].values()))
        if other is not None:
            raise _was_another(step.step, other)
        loop.optimizer.step()
        if loop.rate is not None:
            loop.rate.step()
    loop.optimizer.zero_grad(set_to_none=True)


def taken_elsewhere(loop: Loop, step: Step, rank: int) -> str | None:
    """What tells that a step was not taken in the state that is here now; None where nothing does.

    Args:
        rank: this one; where its record is lost, another's tells of the parameters alone.
    """
    own = step.entries.get(rank)
    entry = own or next(iter(step.entries.values()))
    told = entry.head.get("probe") or {}
    found = probe(loop.optimizer) if told else {}
    for part in (PARAMETERS, OPTIMIZER) if own is not None else (PARAMETERS,):
        if told.get(part) != found.get(part):
            return (
                f"before step {step.step} the loop itself changed {part}, which the journal does not keep (checksum of "
                f"a sample: found {found[part]:08x}, expected {told[part]:08x})"
            )
    return None


def _was_another(step: int, name: str) -> CheckpointError:
    return CheckpointError(
        f"Step {step} was taken with another setting of the optimizer, which the journal does not hold.",
        field=name,
        found="another value",
        expected="the value of that step",
        next_step="Set it before the loop begins, or go on before that step: "
        f"trainingkit recover RUN --to-step {step - 1}",
    )


def _put_gradients(loop: Loop, step: Step, ranks: int) -> None:
    gradients = of_gradients(loop.sync)
    assert gradients is not None
    found = gradients.mean_again(_kept(step, ranks))
    absent = set(step.shared["absent"])
    for parameter, name in parameter_names(inner(loop.model)).items():
        if name in found and name not in absent:
            gradient = torch.empty_like(parameter)
            gradient.detach().as_strided((gradient.numel(),), (1,)).copy_(found[name])
            parameter.grad = gradient.detach()


def _kept(step: Step, ranks: int) -> list[Agreed]:
    kept: list[Agreed] = []
    for index, (names, way) in enumerate(zip(step.shared["buckets"], step.shared["ways"], strict=True)):
        codec, rung, normalise, scale = way
        messages = [step.blob(row_name(index, row)) for row in range(ranks)]
        rows = torch.frombuffer(bytearray(b"".join(each or b"" for each in messages)), dtype=torch.uint8)
        kept.append(Agreed(tuple(names), Rung(rung, normalise), codec, scale, rows.view(ranks, -1)))
    return kept


def _clip(model: nn.Module, step: Step) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    found = torch.nn.utils.get_total_norm(gradients)
    recorded = float.fromhex(step.numbers["norm"])
    if not abs(float(found) - recorded) <= NORM_TOLERANCE * recorded:
        raise CheckpointError(
            f"The journal's gradient of step {step.step} is not the one that was applied.",
            field="journal",
            found=f"a norm of {float(found):.6g}",
            expected=f"{recorded:.6g}",
            next_step=f"Resume with the recipe that wrote it, or leave it out: trainingkit recover RUN --to-step "
            f"{step.step - 1}",
        )
    clip_norm = step.shared["clip_norm"]
    if clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), clip_norm, found.new_tensor(recorded))


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr
