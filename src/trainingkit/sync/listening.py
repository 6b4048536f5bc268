"""What the controller and the training loop tell each other, where there is a controller; else nothing."""

from __future__ import annotations

from collections.abc import Callable

from trainingkit.sync.auto.adaptive import Choice
from trainingkit.sync.auto.flying import Auto
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.moves import Move
from trainingkit.sync.contract import Sync
from trainingkit.sync.squeezed import Squeezed


def first_rung(sync: Sync) -> Rung | None:
    """Where the controller begins; None where there is none."""
    return sync.pilot.at(0) if isinstance(sync, Squeezed) and isinstance(sync.pilot, Auto) else None


def exchanges(sync: Sync) -> int:
    """Exchanges made so far, where a codec makes any."""
    return sync.steps if isinstance(sync, Squeezed) else 0


def hear_moves(sync: Sync, hear: Callable[[Move], None]) -> None:
    """Call `hear` on every rank at each move, after it was prepared and before it counts."""
    if isinstance(sync, Squeezed) and isinstance(sync.pilot, Auto):
        sync.pilot.on_move = hear


def hear_choices(sync: Sync, hear: Callable[[Choice], None]) -> None:
    """Call `hear` on every rank when buckets change the numbers they travel in, before it counts."""
    if isinstance(sync, Squeezed):
        sync.values.on_choice = hear


def loss_teller(sync: Sync) -> Callable[[float], None]:
    """What takes this rank's loss of a step, before it is committed."""
    if not isinstance(sync, Squeezed):
        return lambda loss: None

    def tell(loss: float) -> None:
        sync.loss = loss

    return tell
