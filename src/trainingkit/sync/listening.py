"""What the controller and the training loop tell each other, where there is a controller; else nothing."""

from __future__ import annotations

from collections.abc import Callable

from trainingkit.sync.auto.adaptive import Choice
from trainingkit.sync.auto.flying import Auto
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.auto.moves import Move
from trainingkit.sync.contract import Sync
from trainingkit.sync.going.switch import Going
from trainingkit.sync.squeezed import Squeezed


def of_gradients(sync: Sync) -> Squeezed | None:
    """The synchroniser of gradients that sends them in codecs; None where there is none."""
    found = sync.gradients if isinstance(sync, Going) else sync
    return found if isinstance(found, Squeezed) else None


def first_rung(sync: Sync) -> Rung | None:
    """Where the controller begins; None where there is none."""
    squeezed = of_gradients(sync)
    return squeezed.pilot.at(0) if squeezed is not None and isinstance(squeezed.pilot, Auto) else None


def exchanges(sync: Sync) -> int:
    """Exchanges made so far, where a codec makes any."""
    squeezed = of_gradients(sync)
    return squeezed.steps if squeezed is not None else 0


def hear_moves(sync: Sync, hear: Callable[[Move], None]) -> None:
    """Call `hear` on every rank at each move, after it was prepared and before it counts."""
    squeezed = of_gradients(sync)
    if squeezed is not None and isinstance(squeezed.pilot, Auto):
        squeezed.pilot.on_move = hear


def hear_choices(sync: Sync, hear: Callable[[Choice], None]) -> None:
    """Call `hear` on every rank when buckets change the numbers they travel in, before it counts."""
    squeezed = of_gradients(sync)
    if squeezed is not None:
        squeezed.values.on_choice = hear


def loss_teller(sync: Sync) -> Callable[[float], None]:
    """What takes this rank's loss of a step, before it is committed."""
    squeezed = of_gradients(sync)
    if squeezed is None:
        return lambda loss: None

    def tell(loss: float) -> None:
        squeezed.loss = loss

    return tell
