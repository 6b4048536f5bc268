"""State is state: resume == continue, by parameter name, over other buckets and other numbers of ranks."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from squeezed_models import INT4, TOPK, batch, digest, loss_of, net, squeezed, train, wrapped
from torch import nn

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.jsonstate import dumps, loads
from trainingkit.recovery.treestate import attach_tensors, detach_tensors
from trainingkit.sync.bucketplan import Carried, Run
from trainingkit.sync.plain import PlainDDP, SingleProcess
from trainingkit.sync.residualstate import Pieces, State, export, fill, pending, redistribute

TOTAL = 9


def resumed(context: Context, codec: str, stop_at: int, warmup: int) -> dict[str, Any]:
    """A run that goes through, and one that goes on in a fresh DDP and Sync from the state's stored form."""
    ddp = wrapped(net())
    with squeezed(ddp, codec, warmup_steps=warmup) as sync:
        train(ddp, context, range(stop_at))
        tensors, plain = detach_tensors(sync.state_dict(), "sync")
        stored = loads(dumps(plain, where="sync"), where="sync"), {n: t.clone() for n, t in tensors.items()}
        model = copy.deepcopy(ddp.module)
        straight = train(ddp, context, range(stop_at, TOTAL))
        end = sync.state_dict()
    fresh = wrapped(model)
    with squeezed(fresh, codec, warmup_steps=warmup) as sync:
        state = attach_tensors(*stored)
        kept = copy.deepcopy(state)
        sync.load_state_dict(state)
        assert _digests(sync.state_dict()) == _digests(kept), "before the first step, too"
        again = train(fresh, context, range(stop_at, TOTAL))
        assert _digests(state) == _digests(kept), "what was given is not touched"
        assert _digests(sync.state_dict()) == _digests(end)
    return {"straight": straight, "again": again, "owed": float(sum(r.abs().sum() for r in end["own"].values()))}


def _digests(state: dict[str, Any]) -> dict[str, Any]:
    answers = {name: [(start, digest([values])) for start, values in p] for name, p in state["answer"].items()}
    return {
        "steps": state["steps"],
        "own": {n: digest([t]) for n, t in state["own"].items()},
        "answer": {n: p for n, p in answers.items() if p},
    }


@pytest.mark.parametrize("codec", [INT4, TOPK])
@pytest.mark.parametrize(("ranks", "stop_at"), [(2, 2), (2, 5), (3, 2), (3, 5), (3, 0)])
def test_resume_is_continue(pool: Pool, ranks: int, codec: str, stop_at: int) -> None:
    """Stops before the first step, in the warm-up (three steps) and after it."""
    for one in pool.run(resumed, ranks, codec, stop_at, 3):
        assert one["again"] == one["straight"]
        assert one["owed"] > 0


def other_buckets(context: Context) -> dict[str, Any]:
    """The state of small buckets in one big bucket; an aborted step shows the buckets and changes nothing else."""
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        train(ddp, context, range(3))
        before = sync.state_dict()
    big = wrapped(copy.deepcopy(ddp.module), bucket_cap_mb=25)
    with squeezed(big) as sync:
        sync.load_state_dict(before)
        loss_of(big, batch(3, context.rank)).backward()
        sync.abort()
        after = sync.state_dict()
    assert set(before["own"]) == {name for name, _ in ddp.module.named_parameters()}
    return {"before": {n: digest([t]) for n, t in before["own"].items()}, "after": after["own"]}


@pytest.mark.parametrize("ranks", [2, 3])
def test_own_residuals_survive_other_buckets(pool: Pool, ranks: int) -> None:
    for one in pool.run(other_buckets, ranks):
        assert {name: digest([t]) for name, t in one["after"].items()} == one["before"]


def foreign(context: Context, change: str) -> None:
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        train(ddp, context, range(1))
        state = sync.state_dict()
        name = "7.bias"
        if change == "name":
            state["own"]["decoder.weight"] = state["own"].pop(name)
        elif change == "size":
            state["own"][name] = state["own"][name][:-1]
        else:
            state["answer"][name] = [(0, torch.zeros(state["own"][name].numel() + 1))]
        sync.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ("name", ["field:     sync.own.decoder.weight", "expected:  no such parameter"]),
        ("size", ["found:     63 elements", "expected:  64 elements"]),
        ("answer", ["field:     sync.answer.7.bias", "found:     65 elements"]),
    ],
)
def test_the_state_of_another_model_is_refused(pool: Pool, change: str, texts: list[str]) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(foreign, 2, change)
    told = caught.value.traceback
    assert "CheckpointError: A residual in the snapshot does not fit the model." in told
    assert "next step: Resume with the model that made the snapshot." in told
    for text in texts:
        assert text in told


def starts_from_plain(context: Context) -> bool:
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        sync.load_state_dict(PlainDDP(ddp).state_dict())
        train(ddp, context, range(1))
        return sync.state_dict()["steps"] == 1


def test_the_state_of_plain_ddp_starts_afresh(pool: Pool) -> None:
    assert pool.run(starts_from_plain, 2) == [True, True]


def plain_ignores(context: Context) -> list[str]:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trainingkit").addHandler(handler)
    ddp = wrapped(net())
    PlainDDP(ddp).load_state_dict({"own": {"0.weight": torch.ones(3)}, "answer": {}})
    logging.getLogger("trainingkit").removeHandler(handler)
    return said


def test_plain_ddp_says_that_it_drops_residuals(pool: Pool) -> None:
    assert pool.run(plain_ignores, 2) == [["the snapshot's residuals were dropped: plain DDP has no use for them"]] * 2


SIZES = {"a": 70, "b": 1, "c": 129, "d": 300}


def carried(ranks: int, rank: int) -> Carried:
    """A part over SIZES as a rank of a sharded exchange holds it, with residuals that are small integers."""
    runs, start = [], 0
    for name, size in SIZES.items():
        runs.append(Run(name, start, start, size))
        start += size
    part = Carried(runs, owners=ranks, granule=8)
    generator = torch.Generator().manual_seed(rank)
    for residual in (part.residuals.own, part.residuals.answer):
        if residual is not None:
            residual.copy_(torch.randint(-9, 10, residual.shape, generator=generator))
    part.residuals.own[start:] = 0
    return part


def states_of(ranks: int) -> list[State]:
    return [export([carried(ranks, rank)], rank) for rank in range(ranks)]


def test_what_is_pending_is_the_mean_of_own_plus_answers() -> None:
    ranks = 4
    parts = [carried(ranks, rank) for rank in range(ranks)]
    mean = torch.stack([part.residuals.own for part in parts]).double().mean(dim=0)
    answers = torch.cat([part.residuals.answer for part in parts if part.residuals.answer is not None]).double()
    found = torch.cat(list(pending(states_of(ranks)).values()))
    assert torch.equal(found, (mean + answers)[: found.numel()])


def test_redistribution_keeps_what_is_pending() -> None:
    states = states_of(4)
    before = pending(states)
    assert all(values.any() for name, values in before.items() if name != "b")
    for ranks in (2, 3, 1, 5):
        states = redistribute(states, ranks)
        assert len(states) == ranks
        placed = []
        for rank, state in enumerate(states):
            part = carried(max(2, ranks), 0)
            part.residuals.own.zero_()
            assert part.residuals.answer is not None
            part.residuals.answer.zero_()
            assert fill(part, rank, state) == 0, "nothing found no place"
            placed.append(export([part], rank))
        for name, values in pending(placed).items():
            assert torch.equal(values, before[name]), f"{name} over {ranks} ranks"


def test_rounding_in_redistribution_is_half_a_unit() -> None:
    generator = torch.Generator().manual_seed(3)
    states = [State(own={"a": torch.randn(500, generator=generator)}, answer={"a": []}) for _ in range(3)]
    before = pending(states)["a"]
    after = pending(redistribute(states, 7))["a"]
    assert ((after - before).abs() <= before.abs() * 2.0**-24).all()


@settings(deadline=None, max_examples=8)
@given(ranks=st.integers(2, 9))
def test_answers_that_another_rank_owns_now_are_counted(ranks: int) -> None:
    """A state placed in the same part loses nothing; in a part of other parameters, exactly what moved away."""
    for rank, state in enumerate(states_of(ranks)):
        assert fill(carried(ranks, rank), rank, state) == 0
        part = Carried([Run("d", 0, 0, SIZES["d"])], owners=ranks, granule=8)
        held = sum(values.numel() for _, values in state["answer"].get("d", ()))
        lost = fill(part, rank, state)
        assert lost == held - _kept(export([part], rank)["answer"].get("d", []), state["answer"].get("d", []))


def _kept(now: Pieces, before: Pieces) -> int:
    """How many elements both have; they must be equal."""
    count = 0
    for start, values in now:
        for other, others in before:
            low, high = max(start, other), min(start + values.numel(), other + others.numel())
            if low < high:
                assert torch.equal(values[low - start : high - start], others[low - other : high - other])
                count += high - low
    return count


def test_one_rank_that_goes_on_alone_pays_what_was_owed_once() -> None:
    model = net().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    owed = {name: torch.randn(p.numel()) for name, p in model.named_parameters()}
    x = torch.randn(3, 48)
    model(x).sum().backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    sync = SingleProcess(model)
    sync.load_state_dict({"steps": 4, "own": owed, "answer": {}})
    assert digest(sync.state_dict()["own"]) == digest(owed), "not paid yet"
    for share in (1.0, 0.0):
        model.zero_grad()
        model(x).sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, plain[name] + share * owed[name].view_as(parameter))
    assert sync.state_dict()["own"] == {}


def test_a_debt_follows_the_parameter_s_own_storage_order() -> None:
    model = nn.Conv2d(3, 4, 2, bias=False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    owed = torch.arange(48.0)
    SingleProcess(model).load_state_dict({"own": {"weight": owed}, "answer": {}})
    (0.0 * model(torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last))).sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad.permute(0, 2, 3, 1).flatten(), owed)


def test_a_debt_of_another_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match="does not fit the model") as caught:
        SingleProcess(nn.Linear(3, 4)).load_state_dict({"own": {"weight": torch.zeros(11)}, "answer": {}})
    assert "found:     11 elements\n  expected:  12 elements" in str(caught.value)


def test_a_second_state_replaces_a_debt_that_is_not_paid() -> None:
    model = nn.Linear(2, 2, bias=False)
    sync = SingleProcess(model)
    sync.load_state_dict({"own": {"weight": torch.ones(4)}, "answer": {}})
    sync.load_state_dict({"own": {"weight": torch.full((4,), 2.0)}, "answer": {}})
    (model.weight * 0.0).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.unique().tolist() == [2.0]
