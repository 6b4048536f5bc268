"""What travelled in a step, as a journal keeps it: squeezed gradients, or the rounds of ranks that train apart.

Both are messages that all ranks decode, so a rank keeps its own and those of the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from trainingkit.exchange.registry import HIERARCHICAL
from trainingkit.recovery.journal import row_name
from trainingkit.recovery.names import inner
from trainingkit.sync.agreed import Agreed
from trainingkit.sync.contract import Sync
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.landed import Landed
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.listening import of_gradients
from trainingkit.sync.squeezed import Squeezed
from trainingkit.trainer.engine import StepResult
from trainingkit.trainer.groups import unknown_in


@dataclass(frozen=True)
class Taken:
    """One step.

    Args:
        numbers: of this step, the same on all ranks.
        shared: of this step, the same on all ranks; most of it as in the step before.
        blobs: messages by name.
        probe: of the state before the update; empty where a replay does not take the update.
        gap: why a replay must end before it, as the rest of a sentence; None where it need not.
    """

    numbers: Mapping[str, Any]
    shared: Mapping[str, Any]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    probe: Mapping[str, int] = field(default_factory=dict)
    gap: str | None = None


class Travelled(Protocol):
    """Hears what travels, from when it is made."""

    aligns: bool
    """Whether a step's record holds buffers that are the same on all ranks."""
    probes: bool
    """Whether the state before each update must be looked at."""

    def take(self, result: StepResult) -> Taken:
        """What was heard since the last call, with what a replay of this step needs besides."""
        ...

    def forget(self) -> None:
        """What was heard is in a snapshot."""
        ...

    def close(self) -> None:
        """Hear no more."""
        ...


def travelled_of(sync: Sync, model: nn.Module, rows: Collection[int], clip_norm: float | None) -> Travelled:
    """What hears a synchroniser for which `not_covered` found nothing.

    Args:
        rows: the ranks whose messages are kept.
    """
    if isinstance(sync, EverySync):
        return Rounds(sync, rows)
    gradients = of_gradients(sync)
    assert gradients is not None
    return Gradients(gradients, model, rows, clip_norm)


def not_covered(sync: Sync) -> str | None:
    """What it is about a synchroniser that no journal can keep; None where it can."""
    if isinstance(sync, EverySync) and sync.repeatable:
        return None
    gradients = of_gradients(sync)
    if gradients is None and not (isinstance(sync, EverySync) and sync.coded):
        return "a run in which no squeezed gradients travel"
    if gradients is None or gradients.wire_format[0] == HIERARCHICAL:
        return "the exchange on islands"
    return None


class Gradients:
    """Squeezed gradients, each step's."""

    aligns = True
    probes = True

    def __init__(self, sync: Squeezed, model: nn.Module, rows: Collection[int], clip_norm: float | None) -> None:
        self._sync = sync
        self._names = parameter_names(inner(model))
        self._rows = rows
        self._clip_norm = clip_norm
        self._pending: list[tuple[Agreed, dict[int, bytes]]] = []
        sync.tap = self._hear

    def take(self, result: StepResult) -> Taken:
        """See `Travelled`."""
        pending, self._pending = self._pending, []
        rows = enumerate(rows for _, rows in pending)
        blobs = {row_name(index, row): data for index, each in rows for row, data in each.items()}
        return Taken(
            numbers={
                "committed": result.committed,
                "norm": result.grad_norm.hex(),
                "lrs": [lr.hex() for lr in result.lrs],
            },
            shared=self._shared(pending, result),
            blobs=blobs if result.committed else {},
            probe=result.probe,
            gap=_gap(result, covered=bool(pending)),
        )

    def forget(self) -> None:
        """See `Travelled`."""
        self._pending = []

    def close(self) -> None:
        """See `Travelled`."""
        self._sync.tap = None

    def _hear(self, agreed: Agreed) -> None:
        """On the exchange's last thread: the messages are copied, because the next step overwrites them."""
        self._pending.append((agreed, {row: agreed.rows[row].numpy().tobytes() for row in self._rows}))

    def _shared(self, pending: list[tuple[Agreed, dict[int, bytes]]], result: StepResult) -> dict[str, Any]:
        return {
            "covered": bool(pending),
            "buckets": [list(agreed.names) for agreed, _ in pending],
            "ways": [[a.codec, a.rung.codec, a.rung.normalise, a.scale] for a, _ in pending],
            "absent": [name for p, name in self._names.items() if p.requires_grad and p.grad is None],
            "clip_norm": self._clip_norm,
            "groups": {str(index): dict(group) for index, group in enumerate(result.groups)},
            "unrecorded": unknown_in(result.groups),
            "sync": self._sync.progress(),
            "wire": self._sync.wire_format,
        }


def _gap(result: StepResult, *, covered: bool) -> str | None:
    unrecorded = unknown_in(result.groups)
    if result.committed and not covered:
        return "sent no squeezed gradients, and only those are kept"
    if result.committed and unrecorded is not None:
        return f"was taken with a setting of the optimizer that cannot be recorded ({unrecorded})"
    return None


class Rounds:
    """Rounds of ranks that train apart, in the steps in which they are applied. A replay can end with such a step only.

    Each rank judges its steps alone, so what a step was on a rank is not in it.
    """

    aligns = False
    probes = False

    def __init__(self, sync: EverySync, rows: Collection[int]) -> None:
        self._sync = sync
        self._rows = rows
        self._pending: list[tuple[int, list[dict[int, bytes]]]] = []
        sync.tap = self._hear

    def take(self, result: StepResult) -> Taken:
        """See `Travelled`."""
        pending, self._pending = self._pending, []
        agreed = {"agreed": self._sync.agreed_crc32()} if pending else {}
        rows = enumerate(rows for _, parcels in pending for rows in parcels)
        return Taken(
            numbers={"committed": True, "ends": bool(pending), **agreed},
            shared={
                "covered": True,
                "buckets": [fragment for fragment, parcels in pending for _ in parcels],
                "sync": self._sync.progress(),
                "wire": self._sync.wire_format,
            },
            blobs={row_name(index, row): data for index, each in rows for row, data in each.items()},
        )

    def forget(self) -> None:
        """See `Travelled`."""
        self._pending = []

    def close(self) -> None:
        """See `Travelled`."""
        self._sync.tap = None

    def _hear(self, landed: Landed) -> None:
        parcels = [{row: rows[row].numpy().tobytes() for row in self._rows} for rows in landed.rows]
        self._pending.append((landed.fragment, parcels))
