"""Islands through the door: the same bits on all ranks, nothing lost, resume == continue, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from squeezed_models import INT4, TOPK, gradients, net, squeezed, train, wrapped
from test_conservation import STEPS, Linears, _owed_and_lost, integers

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import check
from trainingkit.sync.section import SyncSection

TWO_BY_TWO = [[0, 1], [2, 3]]
CROSSED = [[0, 3], [1, 2]]


def chosen_gradients(context: Context, codec: str, islands: Any) -> dict[str, Any]:
    ddp = wrapped(Linears())
    model = ddp.module
    given = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    got = {n: torch.zeros(p.numel(), dtype=torch.float64) for n, p in model.named_parameters()}
    with squeezed(ddp, codec, warmup_steps=7, islands=islands) as sync:
        facts = sync.describe()
        for step in range(STEPS):
            wanted = integers(model, step, context.rank)
            ddp.zero_grad()
            ddp(wanted).backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                given[name] += wanted[name].double().flatten()
                got[name] += parameter.grad.double().flatten()
        state = sync.state_dict()
    return {"given": given, "got": got, "state": {"own": state["own"], "answer": state["answer"]}, "facts": facts}


@pytest.mark.parametrize(("codec", "islands"), [(INT4, TWO_BY_TWO), (TOPK, CROSSED)])
def test_sums_are_kept_exactly_on_islands(pool: Pool, codec: str, islands: list[list[int]]) -> None:
    ended = pool.run(chosen_gradients, 4, codec, islands)
    owed, lost = _owed_and_lost(ended)
    assert any(values.any() for values in owed.values()), "something is owed, or the test says nothing"
    for name, values in lost.items():
        assert not values.any(), name
    facts = ended[0]["facts"]
    assert facts["exchange"] == "hierarchical" and facts["islands"] == islands
    assert facts["islands_reason"] == "sync.islands says so"


def resumed(context: Context, start: Any, go_on: Any, stop_at: int) -> dict[str, Any]:
    """A run on islands that goes through, and one that goes on from its state on other ones."""
    ddp = wrapped(net())
    with squeezed(ddp, INT4, islands=start) as sync:
        train(ddp, context, range(stop_at))
        state, model = copy.deepcopy(sync.state_dict()), copy.deepcopy(ddp.module)
        straight = train(ddp, context, range(stop_at, 8))
    fresh = wrapped(model)
    with squeezed(fresh, INT4, islands=go_on) as sync:
        sync.load_state_dict(state)
        again = train(fresh, context, range(stop_at, 8))
        grads = [grad.clone() for grad in gradients(fresh)]
    return {"straight": straight, "again": again, "grads": grads}


def test_resume_equals_continue_on_islands(pool: Pool) -> None:
    for one in pool.run(resumed, 4, TWO_BY_TWO, TWO_BY_TWO, 3):
        assert one["straight"] == one["again"]


@pytest.mark.parametrize(("start", "go_on"), [("off", TWO_BY_TWO), (TWO_BY_TWO, "off"), (TWO_BY_TWO, CROSSED)])
def test_a_state_goes_over_to_other_islands(pool: Pool, start: Any, go_on: Any) -> None:
    ended = pool.run(resumed, 4, start, go_on, 3)
    assert all(one["again"] == ended[0]["again"] for one in ended), "the same bits on all ranks"
    assert all(bool(grad.isfinite().all()) for grad in ended[0]["grads"])


def described(context: Context, islands: Any) -> dict[str, Any]:
    with squeezed(wrapped(net()), INT4, islands=islands) as sync:
        return sync.describe()


@pytest.mark.parametrize(
    ("ranks", "islands", "exchange", "reason"),
    [
        (4, "auto", "sharded", "all ranks run on one host"),
        (4, "off", "sharded", 'sync.islands = "off"'),
        (3, "auto", "sharded", "3 ranks are too few for islands of several ranks each"),
        (3, [[0, 1], [2]], "sharded", "the islands 0,1 + 2 are of different sizes or of one rank each"),
        (2, [[0], [1]], "gather", "the islands 0 + 1 are of different sizes or of one rank each"),
    ],
)
def test_all_ranks_exchange_alike_where_islands_do_not_pay(
    pool: Pool, ranks: int, islands: Any, exchange: str, reason: str
) -> None:
    for facts in pool.run(described, ranks, islands):
        assert facts["exchange"] == exchange
        assert facts["islands"] == [list(range(ranks))]
        assert facts["islands_reason"].startswith(reason)


def test_islands_of_another_job_are_refused(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(described, 3, TWO_BY_TWO)
    for words in ("not those of this job", "4 ranks in [[0, 1], [2, 3]]", "the ranks 0 to 2", "sync.islands"):
        assert words in str(caught.value)


@pytest.mark.parametrize("value", ["on", [[0, "1"]], [0, 1], 4, [[0, True]]])
def test_a_recipe_s_islands_must_be_islands(value: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        check(SyncSection, {"islands": value}, field="sync")
    assert caught.value.field == "sync.islands"
    assert "'auto', 'off', or ranks by island, for example [[0, 1], [2, 3]]" in str(caught.value)


def test_a_recipe_s_islands_share_out_the_ranks() -> None:
    assert check(SyncSection, {"islands": [[3, 2], [1, 0]]}).islands == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match="do not share out the ranks") as caught:
        check(SyncSection, {"islands": [[0, 1], [1, 2]]}, field="sync")
    assert caught.value.field == "sync.islands"
