"""A step is taken on all ranks or on none: non-finite values, abort, a loop that says nothing, GradScaler, weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from squeezed_models import FEATURES, INT4, TOPK, batch, digest, gradients, loss_of, net, squeezed, train, wrapped
from torch import nn

from ranks import Context, Pool, RankFailed

BAD_STEP = 3
STEPS = 7


def backward(ddp: nn.Module, step: int, rank: int, *, poison: float | None = None) -> None:
    """One backward; with `poison`, one element of one parameter's gradient is that."""
    ddp.zero_grad()
    loss = loss_of(ddp, batch(step, rank))
    if poison is not None:
        weight = ddp.module[3].weight  # type: ignore[union-attr]
        loss = loss + (weight[0, 0] * poison if math.isinf(poison) else (weight[0, 0] - weight[0, 0]) / 0.0)
    loss.backward()


def judged(context: Context, codec: str, poison: float | None, explicit: bool) -> dict[str, Any]:
    """Steps in which rank 1's gradient may be poisoned once. Without `poison` that step is left out altogether."""
    ddp = wrapped(net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    found: dict[str, Any] = {"finite": [], "gradients": []}
    with squeezed(ddp, codec, warmup_steps=0) as sync:
        for step in range(STEPS):
            bad = step == BAD_STEP
            if bad and poison is None:
                continue
            if explicit:
                sync.begin()
            if bad:
                found["before"] = digest(sync.state_dict()["own"])
            backward(ddp, step, context.rank, poison=poison if bad and context.rank == 1 else None)
            finite = [bool(p.grad.isfinite().all()) for p in ddp.parameters() if p.grad is not None]
            found["finite"].append(finite)
            found["gradients"].append(None if bad else digest(gradients(ddp)))
            if all(finite):
                optimizer.step()
            if explicit:
                _ = sync.commit() if all(finite) else sync.abort()
            if bad:
                found["after"] = digest(sync.state_dict()["own"])
        state = sync.state_dict()
        found["steps"] = state.pop("steps")
        found["state"] = digest(state["own"]), digest([v for p in state["answer"].values() for _, v in p])
    found["model"] = digest(list(ddp.parameters()))
    return found


@pytest.mark.parametrize("explicit", [True, False], ids=["abort", "nobody-judges"])
@pytest.mark.parametrize("codec", [INT4, TOPK])
@pytest.mark.parametrize(("ranks", "poison"), [(2, math.nan), (3, math.inf)])
def test_a_step_that_is_not_finite_leaves_no_trace(
    pool: Pool, ranks: int, codec: str, poison: float, explicit: bool
) -> None:
    ended = pool.run(judged, ranks, codec, poison, explicit)
    clean = pool.run(judged, ranks, codec, None, explicit)
    for rank, (one, without) in enumerate(zip(ended, clean, strict=True)):
        assert one["finite"] == ended[0]["finite"], "all ranks see the same"
        bad = one["finite"][BAD_STEP]
        assert not all(bad) and any(bad), "one bucket is NaN, the others are whole"
        assert one["before"] == one["after"], f"rank {rank}'s residuals stood still"
        assert [g for g in one["gradients"] if g] == without["gradients"]
        assert (one["model"], one["state"]) == (without["model"], without["state"])
        assert (one["steps"], without["steps"]) == (STEPS, STEPS - 1)


def commits_anyway(context: Context) -> list[str]:
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        backward(ddp, 0, context.rank)
        sync.commit()
        seen = [digest(sync.state_dict()["own"])]
        backward(ddp, 1, context.rank, poison=math.nan if context.rank else None)
        sync.commit()
        seen.append(digest(sync.state_dict()["own"]))
        assert all(bool(r.isfinite().all()) for r in sync.state_dict()["own"].values())
    return seen


def test_a_commit_of_what_is_not_finite_keeps_the_residuals_clean(pool: Pool) -> None:
    for before, after in pool.run(commits_anyway, 2):
        assert before == after


def scaled(context: Context, scale: float, bad: bool) -> dict[str, Any]:
    """A loop with a GradScaler (scale 0: without one); in a bad step rank 1's scaled loss overflows."""
    ddp = wrapped(net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    skipped, scales = [], []
    with squeezed(ddp) as sync:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, growth_interval=3, enabled=scale > 0)
        sync.scaler = scaler if scale else None
        for step in range(STEPS):
            ddp.zero_grad()
            loss = loss_of(ddp, batch(step, context.rank))
            if bad and step == BAD_STEP:
                loss = loss * (1e38 if context.rank == 1 else 1.0)
            scaler.scale(loss).backward()
            before = digest(list(ddp.parameters()))
            scaler.step(optimizer)
            scaler.update()
            skipped.append(before == digest(list(ddp.parameters())))
            scales.append(scaler.get_scale())
        state = sync.state_dict()
    return {
        "skipped": skipped,
        "scales": scales,
        "model": digest(list(ddp.parameters())),
        "own": digest(state["own"]),
        "largest": max(float(r.abs().max()) for r in state["own"].values()),
    }


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_scaler_that_the_sync_knows_changes_nothing(pool: Pool, ranks: int) -> None:
    """Scales are powers of two, so taking them out and putting them back is exact."""
    plain = pool.run(scaled, ranks, 0.0, False)
    with_scaler = pool.run(scaled, ranks, 2.0**14, False)
    for one, other in zip(plain, with_scaler, strict=True):
        assert other["scales"][-1] > 2.0**14, "the scale grew on the way"
        assert (other["model"], other["own"]) == (one["model"], one["own"]), "residuals are kept unscaled"


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_overflow_on_one_rank_skips_the_step_on_all(pool: Pool, ranks: int) -> None:
    ended = pool.run(scaled, ranks, 2.0**14, True)
    for one in ended:
        assert one["skipped"] == [step == BAD_STEP for step in range(STEPS)]
        assert one["scales"] == ended[0]["scales"]
        assert one["model"] == ended[0]["model"]
        assert one["largest"] < 1.0, "nothing of the overflow is owed"
    assert min(ended[0]["scales"]) < max(ended[0]["scales"])


class Inner(nn.Module):
    """Its gradient is what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(96, 64))
        self.bias = nn.Parameter(torch.zeros(40))
        self.head = nn.Linear(2, 2, bias=False)

    def forward(self, matrix: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (self.matrix * matrix).sum() + (self.bias * bias).sum() + 0.0 * self.head.weight.sum()


def given(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(96, 64, generator=generator), torch.randn(40, generator=generator)


def weighted(context: Context, weights: list[float], options: dict[str, Any], steps: int) -> dict[str, Any]:
    ddp = wrapped(Inner(), **options)
    total = torch.zeros(96, 64)
    with squeezed(ddp, "all|int8(block=64)") as sync:
        sync.weight = weights[context.rank]
        for step in range(steps):
            ddp.zero_grad()
            matrix, bias = given(step, context.rank)
            if not sync.weight and sum(weights):
                matrix = matrix * math.nan
            ddp(matrix, bias).backward()
            assert ddp.module.matrix.grad is not None
            total += ddp.module.matrix.grad
        owed = sync.state_dict()["own"]
    return {"total": total, "owed": owed.get("matrix")}


def mean_of(weights: list[float], steps: int) -> torch.Tensor:
    shares = [weight / sum(weights) for weight in weights]
    return sum(  # type: ignore[return-value]
        (share * given(step, rank)[0].double() for step in range(steps) for rank, share in enumerate(shares)),
        torch.zeros(96, 64, dtype=torch.float64),
    )


@pytest.mark.parametrize("weights", [[100.0, 300.0], [7.0, 0.0, 21.0], [1.0, 2.0, 3.0, 1000.0]])
@pytest.mark.parametrize("rebuild", [False, True], ids=["fixed-buckets", "dense-start"])
def test_uneven_batches_give_the_mean_over_tokens(pool: Pool, weights: list[float], rebuild: bool) -> None:
    """A rank without a token has NaN as its gradient (a mean over nothing), and does not spoil the others'."""
    steps = 12
    options = {"find_unused_parameters": not rebuild}
    ended = pool.run(weighted, len(weights), weights, options, steps)
    wanted = mean_of(weights, steps)
    for rank, one in enumerate(ended):
        assert torch.equal(one["total"], ended[0]["total"])
        assert (one["total"] - wanted).abs().max() < 0.05, "the sum over steps is off by one step's rounding at most"
        if not weights[rank]:
            assert not one["owed"].any(), "a rank that took no part owes what it owed before"


def test_equal_weights_are_no_weights(pool: Pool) -> None:
    runs = [pool.run(weighted, 3, [weight] * 3, {}, 4) for weight in (1.0, 37.0, 0.0)]
    for run in runs[1:]:
        for one, other in zip(run, runs[0], strict=True):
            assert torch.equal(one["total"], other["total"]) and torch.equal(one["owed"], other["owed"])


def bad_weight(context: Context, weight: float) -> None:
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        sync.weight = weight
        train(ddp, context, range(1))


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_cannot_be_used_is_refused(pool: Pool, weight: float) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(bad_weight, 2, weight)
    assert "ConfigError: A rank's weight in the mean cannot be used." in caught.value.traceback
    assert f"found:     {weight}" in caught.value.traceback
    assert "expected:  a finite number, not negative" in caught.value.traceback


def test_features_fit_the_model() -> None:
    assert net()(torch.zeros(2, FEATURES)).shape == (2, 5)
