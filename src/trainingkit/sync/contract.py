"""The protocol every synchroniser keeps: a step is begun, then committed or aborted on all ranks alike."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import nn


@dataclass(frozen=True)
class SyncStats:
    """What one step's exchange cost this rank.

    Args:
        wire_bytes: bytes this rank sent.
        hidden: seconds of encode / wire / decode that ran behind backward, by phase name.
        exposed: seconds of encode / decode after the rank's own last gradient was ready.
        waited_s: seconds that `commit` or `abort` itself waited for a round.
        alone: this rank gave the step up, and the others may have taken it: schedules go on.
        events: sentences that a person should see.
    """

    wire_bytes: int = 0
    hidden: dict[str, float] = field(default_factory=dict)
    exposed: dict[str, float] = field(default_factory=dict)
    waited_s: float = 0.0
    alone: bool = False
    events: tuple[str, ...] = ()


class Sync(Protocol):
    """A synchroniser over one model.

    `module` is what forward is called on; `weight` is this rank's share in the mean (its tokens), set before the last
    backward of a step by who knows it; `scaler` is the GradScaler, where there is one. Gradients in `.grad` after the
    last backward of a step are the agreed mean over ranks: the same bits on every rank.
    """

    scaler: Any

    @property
    def weight(self) -> float:
        """See above."""
        ...

    @weight.setter
    def weight(self, weight: float) -> None: ...

    @property
    def module(self) -> nn.Module:
        """What forward is called on."""
        ...

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Context of one forward and backward; only the last of a step exchanges."""
        ...

    def begin(self) -> None:
        """A step starts."""
        ...

    def commit(self) -> SyncStats:
        """The step is taken."""
        ...

    def abort(self) -> SyncStats:
        """The step is given up; everything this synchroniser keeps is as it was at `begin`."""
        ...

    def describe(self) -> dict[str, Any]:
        """JSON-able facts for the page: `name`, `fp32_bytes`, ..."""
        ...

    def stats(self) -> dict[str, Any]:
        """The same facts, and totals so far where there are any."""
        ...

    def detach(self) -> None:
        """From now on plain DDP."""
        ...

    def close(self) -> None:
        """End the threads, if there are any. No backward may follow."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a snapshot keeps."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly there."""
        ...


@runtime_checkable
class TrainsApart(Protocol):
    """What a synchroniser offers besides whose ranks train on their own between rounds (`sync.every`, `sync.going`).

    Gradients are this rank's own then, so each rank judges its steps alone; and its model is not the agreed one.
    """

    @property
    def apart(self) -> bool:
        """Whether that is so now."""
        ...

    def goes_on_from(self, state_dict: Mapping[str, Any]) -> bool:
        """Whether it can continue from a state of training apart."""
        ...

    def agreed_weights(self) -> contextlib.AbstractContextManager[None]:
        """The agreed model in place of this rank's own."""
        ...

    def settle(self) -> bool:
        """Bring all ranks to one model. All ranks call it; returns whether there was anything to do."""
        ...


def trains_apart_now(sync: Sync) -> bool:
    """Whether this rank's gradients are its own in the step that comes."""
    return isinstance(sync, TrainsApart) and sync.apart
