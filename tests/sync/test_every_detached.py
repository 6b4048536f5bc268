"""What `detach` leaves behind: a model in which all is paid, and a state that other synchronisers do not obey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from every_runs import apart, fresh, local_step, sgd, walk
from hearing import hearing
from squeezed_models import INT4, TOPK, digest, squeezed, wrapped

from ranks import Context, Pool
from trainingkit.core.errors import StepError
from trainingkit.sync.auto.ladder import START, Rung
from trainingkit.sync.auto.moves import Move, write_move
from trainingkit.sync.contract import trains_apart_now
from trainingkit.sync.doors import squeeze
from trainingkit.sync.every.handover import final_model, owed
from trainingkit.sync.going.switch import Going
from trainingkit.sync.piloting import AutoSettings

H = 3
DROPPED = "the snapshot's residuals were dropped: they are of gradients, and differences travel now"


def flat(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().flatten().clone() for name, p in model.named_parameters()}


def left(context: Context, text: str, steps: int) -> dict[str, Any]:
    """Detached after some steps; the state before, after the last round, and after it."""
    model = fresh()
    module = wrapped(model)
    optimizer = sgd(model)
    with apart(context, module, optimizer, text) as sync:
        walk(sync, optimizer, context, range(steps))
        sync.settle()
        before = sync.state_dict()
        sync.detach()
        now, after = flat(model), sync.state_dict()
        local_step(module, optimizer, steps, context.rank)
        return {"before": before, "now": now, "after": after, "then": digest(list(model.parameters()))}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (f"every({H})|{TOPK}", 1.0),
        (f"every({H}, outer_lr=0.5)|{INT4}", 0.5),
        (f"every({H}, tau=1, outer_lr=0.5, outer_momentum=0.9, nesterov=true)|{INT4}", 0.95),
        (f"every({H}, outer_lr=0.5, outer_momentum=0.9)|{INT4}", 0.5),
    ],
)
def test_detach_pays_what_rounds_owe(pool: Pool, text: str, rate: float) -> None:
    """As much of it as the outer step would have made of it, in bf16; then nothing is owed, and nothing is lost."""
    one, other = pool.run(left, 2, text, 2 * H + 1)
    assert one["then"] == other["then"]
    missing = owed([one["before"], other["before"]])
    assert sum(float(values.abs().sum()) for values in missing.values()) > 0.1, "the test says something"
    for name, values in missing.items():
        assert torch.equal(one["now"][name], other["now"][name])
        wanted = one["before"]["agreed"]["parameters"][name].double() - rate * values
        assert (one["now"][name] - wanted).abs().max() <= 2**-7 * values.abs().max() + 1e-6, name
    after = [one["after"], other["after"]]
    assert not any(values.any() for values in owed(after).values())
    for name, values in final_model(after).items():
        assert torch.equal(values, one["now"][name]), "what an outer step had of momentum is no debt"


def refused(context: Context) -> dict[str, Any]:
    """Rank 1's optimizer keeps a list when the ranks would detach; then it does not any more."""
    model = fresh()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with apart(context, wrapped(model), optimizer, f"every({H})|{INT4}") as sync:
        walk(sync, optimizer, context, range(H))
        before, state = flat(model), sync.state_dict()
        kept = optimizer.state[next(iter(model.parameters()))]
        if context.rank == 1:
            kept["old"] = []
        texts, unpaid = [], True
        for _ in range(2):
            with pytest.raises(StepError) as caught:
                sync.detach()
            texts.append(str(caught.value))
            unpaid &= digest(flat(model)) == digest(before) and sync.apart
        kept.pop("old", None)
        sync.detach()
        return {"texts": texts, "unpaid": unpaid, "state": state, "before": before, "now": flat(model)}


def test_who_cannot_detach_has_paid_nothing(pool: Pool) -> None:
    """So the next try pays, once."""
    ended = pool.run(refused, 2)
    missing = owed([one["state"] for one in ended])
    for one in ended:
        assert one["texts"] == ended[0]["texts"] and "list on rank 1" in one["texts"][0] and one["unpaid"]
        for name, values in missing.items():
            wanted = one["before"][name].double() - values
            assert (one["now"][name] - wanted).abs().max() <= 2**-7 * values.abs().max() + 1e-6, name


def after_gradients(context: Context, detached: bool) -> dict[str, Any]:
    """Training apart from the state of a synchroniser of gradients."""
    model = fresh()
    optimizer = sgd(model)
    with squeezed(wrapped(model), INT4) as sync:
        local_step(sync.module, optimizer, 0, context.rank)
        if detached:
            sync.detach()
        state = sync.state_dict()
    model = fresh()
    optimizer = sgd(model)
    with apart(context, wrapped(model), optimizer, f"every({H})|{INT4}") as sync, hearing() as heard:
        sync.load_state_dict(state)
        is_apart, same = trains_apart_now(sync), []
        for step in range(H):
            walk(sync, optimizer, context, range(step, step + 1))
            same.append(digest(list(model.parameters())))
        again = sync.state_dict()["detached"]
        return {"apart": is_apart, "same": same, "detached": again, "heard": heard}


@pytest.mark.parametrize("detached", [True, False])
def test_a_detached_state_of_gradients_does_not_keep_ranks_from_training_apart(pool: Pool, detached: bool) -> None:
    one, other = pool.run(after_gradients, 2, detached)
    assert one["apart"] and other["apart"] and not one["detached"]
    assert [a == b for a, b in zip(one["same"], other["same"], strict=True)] == [False, False, True]
    told = "the snapshot's synchroniser, of gradients, was detached: from here on ranks train apart"
    assert one["heard"] == other["heard"] == [DROPPED, *([told] if detached else [])]


def going(context: Context, folder: str, model: Any, optimizer: Any, apart_at: int) -> Going:
    """Gradients, and from a step on ranks train apart."""
    path = Path(folder) / f"decisions-{context.rank}.jsonl"
    path.unlink(missing_ok=True)
    for move in (Move(0, Rung(START), "begin"), Move(apart_at, Rung(START, every=4, tau=4), "test")):
        write_move(path, move)
    sync = squeeze(wrapped(model), "auto", auto=AutoSettings(replay=path), optimizer=optimizer)
    assert isinstance(sync, Going)
    return sync


def squeezed_after(context: Context, folder: str, owes: bool) -> dict[str, Any]:
    """Gradients that may go apart, from a state of training apart that ended by `detach`."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, wrapped(model), optimizer, f"every(4, tau=4)|{START}") as sync:
        walk(sync, optimizer, context, range(5))
        sync.detach()
        state = sync.state_dict()
    if owes:
        next(iter(state["update"]["own"].values())).fill_(1.0)
    before = flat(model)
    sync = going(context, folder, model, optimizer, apart_at=9)
    with hearing() as heard:
        goes_on = sync.goes_on_from(state)
        sync.load_state_dict(state)
        kept = digest(flat(model)) == digest(before)
        mine = sync.state_dict()
        bits = []
        for step in range(2):
            local_step(sync.module, optimizer, step, context.rank)
            sync.commit()
            bits.append(digest(list(model.parameters())))
        sent = sync.stats()["sent_bytes"] < sync.stats()["fp32_bytes"]
    sync.close()
    return {"goes_on": goes_on, "kept": kept, "detached": mine["detached"], "bits": bits, "sent": sent, "heard": heard}


@pytest.mark.parametrize("owes", [False, True])
def test_a_detached_state_of_training_apart_does_not_keep_gradients_from_being_squeezed(
    pool: Pool, owes: bool, tmp_path: Path
) -> None:
    one, other = pool.run(squeezed_after, 2, str(tmp_path), owes)
    told = "the snapshot's synchroniser, of training apart, was detached: from here on gradients are squeezed"
    dropped = "; what its rounds still owed is dropped" if owes else ""
    assert one["bits"] == other["bits"]
    for each in (one, other):
        assert not each["goes_on"] and each["kept"] and not each["detached"] and each["sent"]
        assert each["heard"] == [told + dropped]


def after_auto(context: Context, folder: str, fixed: bool) -> dict[str, Any]:
    """From a run that the controller had led apart: a fixed text of training apart, or such a run again."""
    model = fresh()
    optimizer = sgd(model)
    sync = going(context, folder, model, optimizer, apart_at=2)
    for step in range(3):
        local_step(sync.module, optimizer, step, context.rank)
        sync.commit()
    state = sync.state_dict()
    owes = any(values.any() for values in state["gradients"]["own"].values())
    sync.close()
    with hearing() as heard:
        if fixed:
            with apart(context, wrapped(fresh()), optimizer, f"every({H})|{INT4}") as taken:
                taken.load_state_dict(state)
                return {"heard": heard, "apart": taken.apart, "owes": owes}
        sync = going(context, folder, fresh(), optimizer, apart_at=2)
        sync.load_state_dict(state)
        sync.close()
        return {"heard": heard, "apart": sync.apart, "owes": owes}


@pytest.mark.parametrize("fixed", [True, False])
def test_gradients_residuals_that_waited_are_dropped_by_name_only(pool: Pool, fixed: bool, tmp_path: Path) -> None:
    for one in pool.run(after_auto, 2, str(tmp_path), fixed):
        assert one["owes"] and one["apart"] and one["heard"] == ([DROPPED] if fixed else [])
