"""Optimizers that could never become one again keep ranks from going apart, on all alike and for the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from squeezed_models import batch, digest, loss_of, net, wrapped
from test_auto_every_plant import ApartPlant, load

from ranks import Context, Pool
from trainingkit.core.errors import StepError
from trainingkit.sync.auto.controller import APART_WORTH, ASKED_WORTH, Controller
from trainingkit.sync.auto.forecast import forecast, pick
from trainingkit.sync.auto.ladder import LADDER, START, Rung, whole_ladder
from trainingkit.sync.auto.moves import Move, read_moves, write_move
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.auto.trials import SLACK
from trainingkit.sync.contract import trains_apart_now
from trainingkit.sync.doors import squeeze
from trainingkit.sync.every.handover import owed
from trainingkit.sync.going.switch import Going
from trainingkit.sync.piloting import AutoSettings

TWO, FOUR = Rung(START, every=2, tau=1), Rung(START, every=4, tau=4)
INT3 = Rung("all|int3(block=64)", normalise=True)
STEPS = 16


class Listed(torch.optim.AdamW):
    """Keeps a list of what it was, as L-BFGS does; on some ranks."""

    def __init__(self, parameters: Any, *, lists: bool) -> None:
        super().__init__(parameters, lr=0.01)
        self.lists = lists

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().step(closure)
        first = self.param_groups[0]["params"][0]
        if self.lists:
            self.state[first].setdefault("old_steps", []).append(1.0)


def step(sync: Any, optimizer: Any, number: int, rank: int) -> None:
    optimizer.zero_grad()
    loss_of(sync.module, batch(number, rank)).backward()
    optimizer.step()
    sync.commit()


def walked(sync: Any, optimizer: Any, model: Any, rank: int) -> dict[str, Any]:
    bits, apart = [], []
    for number in range(STEPS):
        step(sync, optimizer, number, rank)
        bits.append(digest(list(model.parameters())))
        apart.append(trains_apart_now(sync))
    sync.close()
    return {"bits": bits, "apart": apart}


def wanted(context: Context, folder: str, lists_on: list[int], before: str) -> dict[str, Any]:
    """The controller wants to go apart at steps 7 and 12; then the moves that it wrote down are repeated."""
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    path.unlink(missing_ok=True)
    model = net()
    optimizer = Listed(model.parameters(), lists=context.rank in lists_on)
    sync: Any = squeeze(wrapped(model), "auto", auto=AutoSettings(max_every=4), optimizer=optimizer)
    pilot, controller = sync.gradients.pilot, sync.gradients.pilot._controller
    names = [str(rung) for rung in controller.ladder]
    course = {2: before, 7: str(FOUR), 12: str(TWO)}

    def observe(number: int, seen: Any) -> Any:
        target = names.index(course.get(number, str(controller.rung)))
        open_ = target != controller.index and controller._allowed(target)
        return controller._move(number, target, "as the script says") if open_ else None

    controller.observe = observe
    write_move(path, pilot.moves[0])
    pilot.on_move = lambda move: write_move(path, move)
    whole = walked(sync, optimizer, model, context.rank)
    state, moves = pilot.state_dict(), read_moves(path)
    model = net()
    optimizer = Listed(model.parameters(), lists=context.rank in lists_on)
    sync = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    again = walked(sync, optimizer, model, context.rank)
    return {"whole": whole, "again": again, "moves": moves, "state": state["controller"]}


@pytest.mark.parametrize(
    ("lists_on", "before"), [([0, 1], START), ([1], str(INT3)), ([0], str(INT3))], ids=["both", "one", "zero"]
)
def test_auto_stays_with_gradients_where_there_is_no_way_back(
    pool: Pool, lists_on: list[int], before: str, tmp_path: Path
) -> None:
    """It is asked once, written down once, and a replay comes to the same bits."""
    one, other = pool.run(wanted, 2, str(tmp_path), lists_on, before)
    assert one == other
    assert not any(one["whole"]["apart"])
    last = one["moves"][-1]
    assert (last.step, str(last.rung)) == (7, before)
    assert last.reason.startswith("ranks never train apart in this run, for there would be no way back. ")
    assert f"(optimizer.state[0].old_steps: list on rank {lists_on[0]}" in last.reason
    assert [move.step for move in one["moves"]] == ([0, 7] if before == START else [0, 2, 7])
    assert one["again"] == one["whole"]
    assert one["state"]["together"] and one["state"]["rung"] == before


def test_auto_goes_where_there_is_a_way_back(pool: Pool, tmp_path: Path) -> None:
    one, other = pool.run(wanted, 2, str(tmp_path), [], START)
    assert one["whole"]["apart"] == other["whole"]["apart"] == [number + 1 >= 7 for number in range(STEPS)]
    assert [str(move.rung) for move in one["moves"]] == [START, str(FOUR), str(TWO)]
    assert not one["state"]["together"]


def repeated(context: Context, folder: str, moves: list[Move], lists_at: int) -> tuple[Any, Listed, Going]:
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    path.unlink(missing_ok=True)
    for move in moves:
        write_move(path, move)
    model = net()
    optimizer = Listed(model.parameters(), lists=context.rank == lists_at)
    sync = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    assert isinstance(sync, Going)
    return model, optimizer, sync


def out(context: Context, folder: str) -> dict[str, Any]:
    """Moves of a run with another optimizer lead apart."""
    moves = [Move(0, Rung(START), "begin"), Move(3, FOUR, "test"), Move(8, Rung(START), "test")]
    model, optimizer, sync = repeated(context, folder, moves, lists_at=1)
    for number in range(2):
        step(sync, optimizer, number, context.rank)
    text = ""
    try:
        step(sync, optimizer, 2, context.rank)
    except StepError as error:
        text = str(error)
    found = {"text": text, "bits": digest(list(model.parameters())), "apart": trains_apart_now(sync)}
    sync.close()
    return found


def test_moves_that_cannot_be_repeated_are_refused_before_ranks_part(pool: Pool, tmp_path: Path) -> None:
    one, other = pool.run(out, 2, str(tmp_path))
    assert one == other and not one["apart"]
    assert "optimizer.state[0].old_steps" in one["text"] and "list on rank 1" in one["text"]


def back(context: Context, folder: str) -> dict[str, Any]:
    """Lists come up while ranks train apart, so that the way back is barred; later they are gone."""
    moves = [Move(0, Rung(START), "begin"), Move(2, FOUR, "test"), Move(6, Rung(START), "test")]
    model, optimizer, sync = repeated(context, folder, moves, lists_at=-1)
    for number in range(5):
        step(sync, optimizer, number, context.rank)
    optimizer.lists = context.rank == 1
    assert sync.rounds is not None
    texts, bits = [], []
    with pytest.raises(StepError) as caught:
        step(sync, optimizer, 5, context.rank)
    state = sync.rounds.state_dict()
    for _ in range(2):
        texts.append(str(caught.value))
        bits.append(digest(list(model.parameters())))
        with pytest.raises(StepError) as caught:
            sync.begin()
    optimizer.state[optimizer.param_groups[0]["params"][0]].pop("old_steps", None)
    settled = {name: p.detach().flatten().clone() for name, p in model.named_parameters()}
    sync.begin()
    now = {name: p.detach().flatten().clone() for name, p in model.named_parameters()}
    apart = trains_apart_now(sync)
    sync.close()
    return {"texts": texts, "bits": bits, "state": state, "settled": settled, "now": now, "apart": apart}


def test_who_tries_again_pays_once(pool: Pool, tmp_path: Path) -> None:
    """A way back that was refused leaves the model settled and everything owed; the one that is free pays it."""
    ended = pool.run(back, 2, str(tmp_path))
    missing = owed([one["state"] for one in ended])
    assert sum(float(values.abs().sum()) for values in missing.values()) > 0.1, "the test says something"
    for one in ended:
        assert one["texts"] == ended[0]["texts"] and one["bits"] == [ended[0]["bits"][0]] * 2 and not one["apart"]
        for name, values in missing.items():
            wanted = one["settled"][name].double() - values
            assert (one["now"][name] - wanted).abs().max() <= 2**-7 * values.abs().max() + 1e-6


class Refused(ApartPlant):
    """A job whose optimizer cannot go apart."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refused = 0
        observe = self.controller.observe

        def asked(step: int, seen: Seen) -> Move | None:
            move = observe(step, seen)
            if move is None or not move.rung.apart:
                return move
            self.refused += 1
            return self.controller.bar_apart(step, "no way back")

        self.controller.observe = asked  # pyright: ignore[reportAttributeAccessIssue]


def best_of_gradients(plant: ApartPlant) -> Rung:
    allowed = [rung for rung in LADDER if rung.ratio <= 10.0]
    times = [forecast(plant.window, plant.link, load(rung)).step_s for rung in allowed]
    return allowed[pick(times, slack=SLACK)]


@pytest.mark.parametrize(
    ("mbit", "worth"), [(10.0, APART_WORTH), (25.0, APART_WORTH), (25.0, ASKED_WORTH), (60.0, ASKED_WORTH)]
)
def test_the_controller_asks_once_and_goes_on_among_gradients(mbit: float, worth: float) -> None:
    plant = Refused(mbit, worth=worth)
    plant.run(100)
    assert plant.refused == 1 and not any(move.rung.apart for move in plant.moves)
    assert plant.controller.settled and plant.controller.rung == best_of_gradients(plant), plant.moves
    plant.loss = 300.0
    plant.run(6)
    assert plant.refused == 1 and not plant.controller.rung.apart


def at(rung: Rung, **state: Any) -> Controller:
    controller = Controller(whole_ladder(4), shared=1.0, max_ratio=10.0, min_density=0.05)
    controller.load_state_dict({"rung": str(rung), "lifted": True, "steady": 300, **state})
    return controller


def spiked(controller: Controller) -> Move | None:
    """The move after a loss that has jumped."""
    losses = [3.0] * 30 + [300.0]
    return [controller.observe(number, Seen(loss=loss, committed=1.0)) for number, loss in enumerate(losses)][-1]


def test_a_guard_that_was_heard_is_not_sent_back_to_the_rung_it_complained_of() -> None:
    """A rung back from the 5 % is apart; where that is refused it is one of gradients before them."""
    coarse = next(rung for rung in LADDER if rung.density == 0.05)
    controller = at(coarse)
    move = spiked(controller)
    assert move is not None and move.rung.apart
    move = controller.bar_apart(31, "no way back")
    assert move.rung == Rung("all|int2(block=256)", normalise=True)
    barred = at(coarse, **{"together": True})
    move = spiked(barred)
    assert move is not None and move.rung == Rung("all|int2(block=256)", normalise=True)
    assert barred.state_dict()["together"]
