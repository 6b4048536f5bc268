"""What goes wrong on one worker stays there: skipped steps, numbers that break down, scalers; rounds stay aligned."""

from __future__ import annotations

import math
import signal
import time
from typing import Any

import pytest
import torch
from every_runs import adamw, agreed, apart, fresh, local_step, sgd, walk
from squeezed_models import INT4, TOPK, batch, digest, loss_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainingkit as tk
from ranks import Context, Fault, Pool, RankFailed
from trainingkit.core.errors import ConfigError, PeerLost, StepError
from trainingkit.sync.every.door import train_apart
from trainingkit.sync.every.state import landed

H = 3


def breaks_down(context: Context, at: int, text: str) -> dict[str, Any]:
    """After step `at` rank 1 holds NaN in a parameter and its moments; it then gives steps up until it is healed."""
    model = fresh()
    optimizer = adamw(model)
    told = []
    bits: list[str] = []
    with apart(context, model, optimizer, text) as sync:
        for step in range(1, 3 * H + 1):
            sick = not all(bool(p.isfinite().all()) for p in model.parameters())
            if not sick:
                local_step(model, optimizer, step, context.rank)
            if step == at and context.rank == 1:
                with torch.no_grad():
                    next(model.parameters())[0, 0] = math.nan
                optimizer.state[next(model.parameters())]["exp_avg"][0, 0] = math.nan
            stats = sync.abort() if sick else sync.commit()
            assert stats.alone == sick
            told += [(step, text) for text in stats.events]
            bits.append(digest(agreed(sync)) if step % H == 0 else "")
        sound = all(bool(p.isfinite().all()) for p in [*model.parameters(), *agreed(sync).values()])
        moments = all(bool(v.isfinite().all()) for s in optimizer.state.values() for v in s.values())
    return {"told": told, "bits": bits, "sound": sound and moments}


@pytest.mark.parametrize("text", [f"every({H})|{INT4}", f"every({H}, delay=1)|{TOPK}", f"every({H}, fragments=2)|none"])
@pytest.mark.parametrize("at", [H, H + 1])
def test_a_worker_whose_numbers_break_down_goes_on_from_the_agreed_model(pool: Pool, text: str, at: int) -> None:
    """At a round's end, when its difference is measured; and in mid-round, when its next step is given up."""
    ended = pool.run(breaks_down, 2, at, text)
    assert all(one["sound"] and one["bits"] == ended[0]["bits"] for one in ended)
    assert ended[0]["told"] == []
    (step, told), *more = ended[1]["told"]
    assert not more
    assert at <= step <= at + 1
    assert told.startswith("This rank's parameters were not finite: it goes on from the agreed model, and its last ")
    assert "The optimizer's state of 1 parameters begins anew." in told


def without_the_sick(context: Context) -> bool:
    """What rank 0 alone did is what the round agrees on when rank 1's difference is not finite."""
    model = fresh()
    optimizer = sgd(model)
    healthy = fresh()
    other = sgd(healthy)
    with apart(context, model, optimizer, "every(2)|none") as sync:
        for step in range(2):
            local_step(model, optimizer, step, context.rank)
            local_step(healthy, other, step, 0)
            if step == 1 and context.rank == 1:
                next(model.parameters()).data.fill_(math.inf)
            sync.commit()
    begun = list(fresh().parameters())
    return all(
        torch.equal(p, b - (b - h)) for p, h, b in zip(model.parameters(), healthy.parameters(), begun, strict=True)
    )


def test_a_difference_that_is_not_finite_has_no_weight(pool: Pool) -> None:
    assert pool.run(without_the_sick, 2) == [True, True]


def given_up(context: Context, text: str) -> dict[str, Any]:
    """A residual that is not finite on rank 1 spoils one round: all drop it, and its differences are sent again."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, model, optimizer, text) as sync:
        residuals = sync.fragments[0].parcels[0].carried[0].residuals
        if context.rank == 1:
            residuals.own.fill_(math.inf)
        before = digest(agreed(sync))
        walk(sync, optimizer, context, range(H - 1))
        local_step(model, optimizer, H - 1, context.rank)
        told = list(sync.commit().events)
        if "delay" in text:
            walk(sync, optimizer, context, range(H, 2 * H - 1))
            local_step(model, optimizer, 2 * H - 1, context.rank)
            told += sync.commit().events
        dropped = digest(agreed(sync)) == before
        residuals.own.zero_()
        walk(sync, optimizer, context, range(2 * H, 4 * H))
        sync.settle()
        return {"told": told, "dropped": dropped, "moved": digest(agreed(sync)) != before, "end": digest(agreed(sync))}


@pytest.mark.parametrize("text", [f"every({H})|{INT4}", f"every({H}, delay=1)|{INT4}"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_sum_that_is_not_finite_is_dropped_by_all(pool: Pool, ranks: int, text: str) -> None:
    ended = pool.run(given_up, ranks, text)
    for one in ended:
        assert one["told"] == ["A round was given up on all ranks: a sum was not finite. It is made again."]
        assert one["dropped"] and one["moved"] and one["end"] == ended[0]["end"]


def healed_in_flight(context: Context) -> dict[str, Any]:
    """Rank 0 is healed while a round flies, which is then given up: its work is gone, and its weight."""
    model = fresh()
    optimizer = sgd(model)
    first = next(model.parameters())
    with apart(context, model, optimizer, f"every({H}, delay=1)|{INT4}") as sync:
        residuals = sync.fragments[0].parcels[0].carried[0].residuals
        if context.rank == 1:
            residuals.own.fill_(math.inf)
        walk(sync, optimizer, context, range(H))
        if context.rank == 0:
            first.data.fill_(math.nan)
            sync.abort()
        else:
            walk(sync, optimizer, context, range(H, H + 1))
        walk(sync, optimizer, context, range(H + 1, 2 * H - 1))
        told = sync.state_dict()["fragments"][0]
    return {"tokens": told["tokens"], "since": told["since"], "flying": told["flying"]}


def test_a_healed_ranks_weight_does_not_come_back_without_its_work(pool: Pool) -> None:
    healed, sound = pool.run(healed_in_flight, 2)
    assert healed == {"tokens": H - 2, "since": 2 * H - 1, "flying": False}
    assert sound == {"tokens": 2 * H - 1, "since": 2 * H - 1, "flying": False}


def loaded_while_flying(context: Context) -> dict[str, Any]:
    """A state is loaded while a round of the same synchroniser flies; what follows is what followed the state."""
    model = fresh()
    optimizer = sgd(model)
    text = f"every({H}, delay=1, decay=0.9)|{TOPK}"
    with apart(context, model, optimizer, text) as sync:
        walk(sync, optimizer, context, range(2 * H - 1))
        state = sync.state_dict()
        decayed = sync.stats()["decayed"]
        walk(sync, optimizer, context, range(2 * H - 1, 3 * H + 1))
        after = [digest(list(model.parameters())), digest(agreed(sync)), sync.stats()["decayed"]]
        walk(sync, optimizer, context, range(3 * H + 1, 4 * H))
        assert all(fragment.flying for fragment in sync.fragments)
        sync.load_state_dict(state)
        back = sync.stats()["decayed"]
        walk(sync, optimizer, context, range(2 * H - 1, 3 * H + 1))
        again = [digest(list(model.parameters())), digest(agreed(sync)), sync.stats()["decayed"]]
        walk(sync, optimizer, context, range(3 * H + 1, 3 * H + 1 + H))
        assert all(fragment.flying for fragment in sync.fragments)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)
        sync.load_state_dict({"own": {}})
        afresh = bool(all((values == 0.5).all() for values in agreed(sync).values()))
        owes = any(bool(values.any()) for values in sync.state_dict()["update"]["own"].values())
    return {"after": after, "again": again, "decayed": decayed, "back": back, "afresh": afresh, "owes": owes}


def test_a_state_is_loaded_while_a_round_flies(pool: Pool) -> None:
    for one in pool.run(loaded_while_flying, 2):
        assert one["again"][:2] == one["after"][:2]
        assert one["again"][2] == pytest.approx(one["after"][2])
        assert one["back"] == pytest.approx(one["decayed"]) and one["decayed"] > 0
        assert one["afresh"] and not one["owes"]


def other_outer_step(context: Context) -> bool:
    """A state with a round in flight is loaded where the outer step is another one: that round keeps its own."""
    texts = [f"every({H}, delay=1{outer})|none" for outer in ("", ", outer_lr=0.5")]
    states = []
    for text in texts:
        model = fresh()
        optimizer = sgd(model)
        with apart(context, model, optimizer, text) as sync:
            if states:
                sync.load_state_dict(states[0])
                expected = landed(states[0])["agreed"]["parameters"]
                return all(torch.equal(agreed(sync)[name], values) for name, values in expected.items())
            walk(sync, optimizer, context, range(H + 1))
            states.append(sync.state_dict())
            assert states[0]["fragments"][0]["flying"]
    return False


def test_a_round_keeps_the_outer_step_that_it_was_started_with(pool: Pool) -> None:
    assert pool.run(other_outer_step, 2) == [True, True]


def script(context: Context, wrap: bool, scale: float, accumulate: int) -> dict[str, Any]:
    """A loop of its own: one line, nothing else; with a scale, rank 1's loss overflows in step 4."""
    model: nn.Module = fresh(seed=1 + context.rank * (not wrap))
    module = DistributedDataParallel(model) if wrap else model
    optimizer = adamw(model)
    sync = tk.compress(module, f"every({H})|{INT4}", optimizer=optimizer)
    begun = digest(list(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale > 0)
    sync.scaler = scaler if scale else None
    bits, steps, scales = [], [], []
    for step in range(1, 3 * H + 1):
        optimizer.zero_grad()
        for part in range(accumulate):
            loss = loss_of(module, batch(10 * step + part, context.rank)) / accumulate
            bad = scale and step == 4 and context.rank == 1
            scaler.scale(loss * (1e38 if bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        bits.append(digest(list(model.parameters())))
        steps.append(sync.stats()["steps"])
        scales.append(scaler.get_scale())
    sync.close()
    return {"begun": begun, "bits": bits, "steps": steps, "rounds": sync.stats()["rounds"], "scales": scales}


@pytest.mark.parametrize(("wrap", "scale", "accumulate"), [(True, 0.0, 2), (True, 2.0**14, 1), (False, 2.0**14, 2)])
def test_a_script_needs_one_line(pool: Pool, wrap: bool, scale: float, accumulate: int) -> None:
    """In DDP or bare (then rank 0's model is everybody's), with accumulation, and with a scaler that skips a step."""
    ended = pool.run(script, 2, wrap, scale, accumulate)
    assert ended[0]["begun"] == ended[1]["begun"]
    same = [a == b for a, b in zip(ended[0]["bits"], ended[1]["bits"], strict=True)]
    assert same == [False, False, True] * 3, "gradients stay on their rank, and models meet each third step"
    for one in ended:
        assert one["steps"] == list(range(1, 3 * H + 1)) and one["rounds"] == 3
    if scale:
        assert min(ended[1]["scales"]) < min(ended[0]["scales"]), "a scale is a rank's own"


def leaves(context: Context, wrap: bool) -> list[bool]:
    """Back to plain DDP after five steps."""
    model = fresh()
    module = DistributedDataParallel(model) if wrap else model
    optimizer = sgd(model)
    sync = tk.compress(module, f"every({H})|{INT4}", optimizer=optimizer)
    same = []
    for step in range(8):
        if step == 5:
            sync.detach()
        local_step(module, optimizer, step, context.rank)
        same.append(digest(list(model.parameters())))
    sync.close()
    return same


def test_detach_is_plain_ddp_again(pool: Pool) -> None:
    ended = pool.run(leaves, 2, True)
    assert [a == b for a, b in zip(*ended, strict=True)] == [False, False, True, False, False, True, True, True]


def test_without_ddp_there_is_nothing_to_go_back_to(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(leaves, 2, False)
    assert f"{StepError.__name__}: There is no DistributedDataParallel to go on with." in caught.value.traceback
    assert "Call `settle`, which gives all ranks one model, and wrap it then." in caught.value.traceback


def refused(context: Context, case: str) -> str:
    model = fresh()
    cases: dict[str, dict[str, Any]] = {
        "optimizer": {"optimizer": None},
        "warmup": {"warmup_steps": 3},
        "normalise": {"normalise": True},
        "weight": {},
        "double": {},
        "model": {},
        "exchange": {"codec": "every(2, exchange=hierarchical)|none"},
        "unknown": {"codec": "every(2, exchange=gathr)|none"},
    }
    settings = {"codec": "every(2)|none", "optimizer": sgd(model), **cases[case]}
    if case == "double":
        model = model.double()
    if case == "model" and context.rank == 1:
        model = nn.Sequential(nn.Linear(3, 3))
    try:
        sync = tk.compress(model, **settings)
        sync.weight = -1.0
        local_step(model, settings["optimizer"], 0, context.rank)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("optimizer", ["follows the steps of an optimizer, and none was given", "compress(model, codec, optimizer="]),
        ("warmup", ["field:     sync.warmup_steps", "found:     3"]),
        ("normalise", ["field:     sync.normalise", "Remove normalise"]),
        ("weight", ["A rank's weight in the mean cannot be used.", "found:     -1.0"]),
        ("double", ["Parameters that fp32 cannot hold cannot be agreed on.", "0.weight (float64)"]),
        ("model", ["The models of rank 0 and rank 1 differ.", "Build the same model on every rank."]),
        ("exchange", ["This exchange needs islands.", "Remove the exchange from the text."]),
        ("unknown", ["There is no exchange called 'gathr'", "Did you mean 'gather'?"]),
    ],
)
def test_what_cannot_work_is_refused_on_all_ranks(pool: Pool, case: str, texts: list[str]) -> None:
    for told in pool.run(refused, 2, case):
        for text in texts:
            assert text in told


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        ("every(64, fragments=64)|none", {}, "fewer layers than fragments"),
        ("every(2, exchange=gathr)|none", {}, "Did you mean 'gather'?"),
        ("every(2)|none", {"adaptive": True}, "Remove adaptive"),
    ],
)
def test_one_worker_is_refused_what_several_are(text: str, settings: dict[str, Any], told: str) -> None:
    """A run that begins with one worker may go on with more."""
    model = fresh()
    with pytest.raises(ConfigError) as caught:
        train_apart(model, sgd(model), text, group=None, **settings)
    assert told in str(caught.value)


def loses_a_peer(context: Context, text: str) -> dict[str, Any]:
    """The last rank dies when a round starts; the others say what they saw."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, model, optimizer, text) as sync:
        walk(sync, optimizer, context, range(H - 1))
        local_step(model, optimizer, H - 1, context.rank)
        context.at_step(H)
        begin = time.monotonic()
        try:
            sync.commit()
            walk(sync, optimizer, context, range(H, 3 * H))
        except PeerLost as error:
            return {"text": str(error), "seconds": time.monotonic() - begin}
    return {}


@pytest.mark.parametrize(("ranks", "text"), [(2, f"every({H})|{INT4}"), (3, f"every({H}, delay=1)|{INT4}")])
def test_a_lost_peer_is_noticed_at_the_round(pool: Pool, ranks: int, text: str) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(loses_a_peer, ranks, text, faults=[Fault(ranks - 1, H, "kill")], grace_s=20.0)
    assert caught.value.died == {ranks - 1: signal.SIGKILL}
    for found in caught.value.results.values():
        assert found["text"].startswith("The exchange with another rank failed: that rank, or the way to it, is gone.")
        assert found["seconds"] < 10
    assert len(caught.value.results) == ranks - 1
