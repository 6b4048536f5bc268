"""A normalised wire: gradients are coded in units of the root of their agreed second moment.

The oracle is the arithmetic written down once more in plain torch, to the last bit. Then what every wire must keep:
same bits on all ranks, resume == continue, a step that is given up leaves no trace, and what is owed stays owed.
"""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from squeezed_models import INT4, batch, digest, gradients, loss_of, net, squeezed, train, wrapped
from torch import nn

from ranks import Context, Pool, RankFailed
from trainingkit.codec import Codec, parse
from trainingkit.recovery.jsonstate import dumps, loads
from trainingkit.recovery.treestate import attach_tensors, detach_tensors
from trainingkit.sync.bucketplan import Carried, Run
from trainingkit.sync.moment import FLOOR, Moment, unit_of
from trainingkit.sync.piloting import default_warmup
from trainingkit.sync.plain import SingleProcess
from trainingkit.sync.residualstate import State, export, fill, in_gradients, pending, redistribute, state_in

INT2 = "all|int2"
SHAPES = {"first": (64, 128), "second": (128, 128)}
BAD_STEP = 3


class Chosen(nn.Module):
    """Its gradients are what it is given: two matrices that are squeezed, a vector and a head that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(SHAPES["first"]))
        self.second = nn.Parameter(torch.zeros(SHAPES["second"]))
        self.bias = nn.Parameter(torch.zeros(33))
        self.head = nn.Linear(2, 2, bias=False)

    def forward(self, wanted: dict[str, torch.Tensor]) -> torch.Tensor:
        products = [(parameter * wanted[name]).sum() for name, parameter in self.named_parameters() if name in wanted]
        return torch.stack([*products, 0.0 * self.head.weight.sum()]).sum()


def wanted(step: int, rank: int) -> dict[str, torch.Tensor]:
    """Gradients whose elements differ in size by factors of a hundred and more, always the same elements."""
    sizes, generator = torch.Generator().manual_seed(9), torch.Generator().manual_seed(100 * step + rank)
    shapes = {**SHAPES, "bias": (33,)}
    return {
        name: torch.randn(shape, generator=generator) * torch.randn(shape, generator=sizes).mul(1.5).exp() / 64
        for name, shape in shapes.items()
    }


def state_digest(state: dict[str, Any]) -> dict[str, Any]:
    answers = {name: [(start, digest([values])) for start, values in p] for name, p in state["answer"].items() if p}
    return {"own": digest(state["own"]), "answer": answers, "moment": digest(state["moment"])}


def chosen_steps(context: Context, codec: str, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    """Gradients by step, and the state after the last one."""
    ddp = wrapped(Chosen())
    scale = options.get("scale", 1.0)
    weights = options.get("weights")
    seen = []
    with squeezed(ddp, codec, normalise=options.get("normalise", True), warmup_steps=0) as sync:
        sync.scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale != 1.0 else None
        if sync.scaler is not None:
            sync.scaler.scale(torch.ones(1))
        for step in range(steps):
            ddp.zero_grad()
            sync.weight = weights[step][context.rank] if weights else 1.0
            (ddp(wanted(step, context.rank)) * scale).backward()
            seen.append({n: p.grad.flatten() / scale for n, p in ddp.module.named_parameters() if p.grad is not None})
        return {"gradients": seen, "state": sync.state_dict()}


def reference(codec: Codec, ranks: int, name: str, steps: int) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """One parameter's way, without buckets, threads or messages between processes."""
    n = math.prod(SHAPES[name])
    own, answer = [torch.zeros(n) for _ in range(ranks)], torch.zeros(n)
    square, unit, known = torch.zeros(n), torch.ones(n), False
    message, said, seen = torch.zeros(codec.message_bytes(n), dtype=torch.uint8), torch.zeros(n), []

    def tell(values: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        left = torch.zeros(n)
        codec.encode(values, residual, message, left)
        codec.decode(message, said)
        residual.copy_(left)
        return said.clone()

    for step in range(steps):
        total = torch.zeros(n)
        for rank in range(ranks):
            total += tell(wanted(step, rank)[name].flatten() / unit, own[rank])
        mean = total * (1.0 / ranks)
        mean = (tell(mean, answer) if ranks > 2 else mean) * unit
        seen.append(mean)
        square = square + 0.05 * (mean * mean - square) if known else mean * mean
        known, root = True, square.double().sqrt().float()
        halves = root.view(-1, 1024)
        while halves.shape[1] > 1:
            halves = halves[:, : halves.shape[1] // 2] + halves[:, halves.shape[1] // 2 :]
        while halves.shape[0] > 1:
            halves = halves[: len(halves) // 2] + halves[len(halves) // 2 :]
        following = root.clamp_min(FLOOR * float(halves) / n)
        for residual in (*own, answer):
            residual.mul_(unit / following)
        unit = following
    return seen, {"own": own, "answer": answer, "moment": square}


@pytest.mark.parametrize("codec", [INT4, INT2])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_wire_does_what_is_written_down(pool: Pool, ranks: int, codec: str) -> None:
    ended = pool.run(chosen_steps, ranks, codec, 4, {})
    for name in SHAPES:
        seen, state = reference(Codec(codec), ranks, name, 4)
        for rank, one in enumerate(ended):
            for step, mean in enumerate(seen):
                assert torch.equal(one["gradients"][step][name], mean), f"{name} in step {step}"
            assert torch.equal(one["state"]["own"][name], state["own"][rank])
            assert torch.equal(one["state"]["moment"][name], state["moment"])
            for start, values in one["state"]["answer"].get(name, []):
                assert torch.equal(values, state["answer"][start : start + values.numel()])
    assert set(ended[0]["state"]["moment"]) == set(SHAPES), "what is exempt is never normalised"


def test_small_elements_are_heard_beside_big_ones(pool: Pool) -> None:
    """What normalising is for: errors are as even as the elements' own sizes, and half as big and less."""
    sizes = torch.stack([wanted(step, 0)["second"].flatten().abs() for step in range(16)]).mean(dim=0)
    errors = []
    for normalise in (False, True):
        steps = pool.run(chosen_steps, 2, INT4, 16, {"normalise": normalise})[0]["gradients"]
        true = [(wanted(step, 0)["second"] + wanted(step, 1)["second"]).flatten() / 2 for step in range(16)]
        off = torch.stack([(g["second"] - mean) / sizes for g, mean in zip(steps, true, strict=True)])
        errors.append(float(off[8:].square().mean().sqrt()))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_what_is_owed_is_kept_to_the_rounding_of_fp32(pool: Pool, ranks: int) -> None:
    """The sum of the agreed means plus what is owed, in gradients' units, is the sum of the gradients."""
    steps = 20
    ended = pool.run(chosen_steps, ranks, INT4, steps, {})
    owed = pending([state_in(one["state"]) for one in ended])
    for name in SHAPES:
        got = sum(g[name].double() for g in ended[0]["gradients"])
        given = sum(wanted(s, r)[name].double().flatten() / ranks for s in range(steps) for r in range(ranks))
        largest = max(wanted(s, r)[name].abs().max() for s in range(steps) for r in range(ranks))
        assert owed[name].abs().max() > 1e-4 * largest
        assert (got + owed[name] - given).abs().max() < 1e-6 * steps * largest


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_scaler_changes_nothing(pool: Pool, ranks: int) -> None:
    plain, scaled = (pool.run(chosen_steps, ranks, INT4, 3, {"scale": scale}) for scale in (1.0, 2.0**12))
    for one, other in zip(plain, scaled, strict=True):
        assert [digest(g) for g in one["gradients"]] == [digest(g) for g in other["gradients"]]
        assert state_digest(one["state"]) == state_digest(other["state"]), "the moment is of unscaled gradients"


def test_a_rank_that_takes_no_part_owes_the_same_and_learns_the_same(pool: Pool) -> None:
    all_in, one_out = [1.0, 1.0, 1.0], [2.0, 0.0, 1.0]
    before = pool.run(chosen_steps, 3, INT4, 3, {"weights": [all_in] * 3})
    after = pool.run(chosen_steps, 3, INT4, 4, {"weights": [all_in] * 3 + [one_out]})
    assert len({digest(one["state"]["moment"]) for one in after}) == 1
    assert len({digest(one["gradients"][3]) for one in after}) == 1
    owed, still = (in_gradients(state_in(ended[1]["state"]))["own"] for ended in (before, after))
    for name in SHAPES:
        assert digest([before[1]["state"]["own"][name]]) != digest([after[1]["state"]["own"][name]]), "another unit"
        assert torch.allclose(still[name], owed[name], rtol=1e-6, atol=0.0)


def resumed(context: Context, codec: str, stop_at: int, buckets_mb: float) -> dict[str, Any]:
    """A run that goes through, and one that goes on in a fresh DDP and Sync from the state's stored form."""
    ddp = wrapped(net())
    with squeezed(ddp, codec, warmup_steps=2, normalise=True) as sync:
        train(ddp, context, range(stop_at))
        tensors, plain = detach_tensors(sync.state_dict(), "sync")
        stored = loads(dumps(plain, where="sync"), where="sync"), {n: t.clone() for n, t in tensors.items()}
        model = copy.deepcopy(ddp.module)
        straight = train(ddp, context, range(stop_at, 7))
        end = state_digest(sync.state_dict())
    fresh = wrapped(model, bucket_cap_mb=buckets_mb)
    with squeezed(fresh, codec, warmup_steps=2, normalise=True) as sync:
        given = attach_tensors(*stored)
        before = state_digest(given)
        sync.load_state_dict(given)
        loss_of(fresh, batch(0, context.rank)).backward()
        sync.abort()
        placed = state_digest(sync.state_dict())
        sync.steps = stop_at
        again = train(fresh, context, range(stop_at, 7))
        found = {"straight": straight, "again": again, "before": before, "placed": placed}
        return {**found, "end": end, "end_again": state_digest(sync.state_dict())}


@pytest.mark.parametrize(("ranks", "codec", "stop_at"), [(2, INT2, 1), (2, INT4, 4), (3, INT4, 4)])
def test_resume_is_continue(pool: Pool, ranks: int, codec: str, stop_at: int) -> None:
    ended = pool.run(resumed, ranks, codec, stop_at, 0.05)
    for one in ended:
        assert one["placed"] == one["before"], "an aborted step shows the buckets and changes nothing"
        assert one["again"] == one["straight"] == ended[0]["straight"]
        assert one["end_again"] == one["end"]
    assert len({one["end"]["moment"] for one in ended}) == 1


def test_other_buckets_keep_residuals_and_moments(pool: Pool) -> None:
    for one in pool.run(resumed, 2, INT4, 4, 25.0):
        assert one["placed"] == one["before"]


def rebuilt(context: Context) -> dict[str, Any]:
    """DDP puts its buckets in another order after the first backward; until then it reduces by itself."""
    ddp = wrapped(net(), find_unused_parameters=False)
    with squeezed(ddp, normalise=True) as sync:
        seen = train(ddp, context, range(5))
        state = sync.state_dict()
        sync.detach()
        train(ddp, context, range(5, 6))
        return {"seen": seen, "state": state_digest(state), "detached": state_digest(sync.state_dict())}


def test_rebuilt_buckets_and_a_detached_wire(pool: Pool) -> None:
    ended = pool.run(rebuilt, 3)
    for one in ended:
        assert one["seen"] == ended[0]["seen"] and one["state"]["moment"] == ended[0]["state"]["moment"]
        assert one["detached"] == one["state"], "plain DDP teaches nothing"


def given_up(context: Context, poison: bool) -> dict[str, Any]:
    """A step with NaN on rank 1 that nobody judges, or a good one that is aborted; then the run without it."""
    found: dict[str, Any] = {}
    for kind in ("with", "without"):
        ddp = wrapped(Chosen())
        seen = []
        with squeezed(ddp, normalise=True) as sync:
            for step in range(6):
                if step == BAD_STEP and kind == "without":
                    continue
                ddp.zero_grad()
                grads = wanted(step, context.rank)
                if step == BAD_STEP and poison and context.rank == 1:
                    grads["first"][0, 0] = math.nan
                ddp(grads).backward()
                if step != BAD_STEP:
                    seen.append(digest(gradients(ddp)))
                elif not poison:
                    sync.abort()
            found[kind] = seen, state_digest(sync.state_dict())
    return found


@pytest.mark.parametrize("poison", [True, False], ids=["nan", "abort"])
def test_a_step_that_is_given_up_leaves_no_trace(pool: Pool, poison: bool) -> None:
    for one in pool.run(given_up, 3, poison):
        assert one["with"] == one["without"]


def switched(context: Context, first: bool) -> dict[str, Any]:
    """The state of a wire, taken over by one of the other kind and shown its buckets."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("trainingkit")
    level = log.level
    ddp = wrapped(Chosen())
    with squeezed(ddp, normalise=first) as sync:
        for step in range(3):
            ddp(wanted(step, context.rank)).backward()
        before = sync.state_dict()
    other = wrapped(Chosen())
    with squeezed(other, normalise=not first) as sync:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        sync.load_state_dict(before)
        log.setLevel(level)
        log.removeHandler(handler)
        other(wanted(3, context.rank)).backward()
        sync.abort()
        after = sync.state_dict()
        other(wanted(3, context.rank)).backward()
        went_on = digest(gradients(other))
    return {"before": before, "after": after, "said": said, "went_on": went_on, "kind": sync.describe()["normalise"]}


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (True, "the state's wire was normalised: residuals are in gradients' units again, moments are dropped"),
        (False, "the state's wire was not normalised: residuals stay as they are, the moments begin anew"),
    ],
)
def test_a_state_of_the_other_kind_is_owed_in_gradients(pool: Pool, first: bool, told: str) -> None:
    ended = pool.run(switched, 3, first)
    before, after = (pending([state_in(one[when]) for one in ended]) for when in ("before", "after"))
    for name, owed in before.items():
        assert owed.any() or name == "head.weight"
        assert torch.allclose(after[name], owed, rtol=1e-6, atol=1e-12)
    for one in ended:
        assert one["said"] == [told] and one["kind"] is not first
        assert ("moment" in one["before"], "moment" in one["after"]) == (first, not first)
        assert one["went_on"] == ended[0]["went_on"]


def foreign(context: Context) -> None:
    ddp = wrapped(Chosen())
    with squeezed(ddp, normalise=True) as sync:
        sync.load_state_dict({"steps": 1, "own": {}, "answer": {}, "moment": {"first": torch.ones(3)}})


def test_the_moment_of_another_model_is_refused(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(foreign, 2)
    told = caught.value.traceback
    assert "CheckpointError: A second moment in the snapshot does not fit the model." in told
    assert "field:     sync.moment.first" in told and "expected:  8192 elements" in told


def part_with_state(ranks: int, rank: int) -> Carried:
    """A part as a rank of a sharded exchange holds it, in a unit that differs from element to element."""
    part = Carried([Run("a", 0, 0, 70), Run("b", 70, 70, 301)], owners=ranks, granule=8, normalise=True)
    everybody, mine = torch.Generator().manual_seed(5), torch.Generator().manual_seed(rank)
    assert part.moment is not None and part.residuals.answer is not None
    for index, run in enumerate(part.runs):
        part.moment.load(index, torch.randn(run.elements, generator=everybody).mul(3.0).exp())
        part.residuals.own[run.span] = torch.randn(run.elements, generator=mine)
    part.residuals.answer.copy_(torch.randn(part.layout.shard, generator=mine))
    return part


def test_another_number_of_ranks_owes_the_same_in_gradients() -> None:
    states = [export([part_with_state(4, rank)], rank) for rank in range(4)]
    before, square = pending(states), states[0].get("moment", {})
    for ranks in (3, 2, 5):
        states = redistribute(states, ranks)
        placed = []
        for rank, state in enumerate(states):
            part = Carried(part_with_state(2, 0).runs, owners=ranks, granule=8, normalise=True)
            assert fill(part, rank, state) == 0
            placed.append(export([part], rank))
            assert digest(placed[-1].get("moment", {})) == digest(square)
        for name, owed in pending(placed).items():
            assert torch.allclose(owed, before[name], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    ("codec", "normalise", "steps"),
    [
        ("all|int2", True, 10),
        ("all|int3", True, 10),
        ("all|int4", True, 0),
        ("all|int2", False, 0),
        ("topk(0.05)|int2", True, 40),
        ("topk(0.05)|int4", False, 40),
    ],
)
def test_few_bits_begin_with_eight(codec: str, normalise: bool, steps: int) -> None:
    assert default_warmup(parse(codec), normalise=normalise) == steps


def test_one_rank_alone_pays_gradients() -> None:
    model = nn.Linear(4, 3, bias=False)
    square = torch.linspace(0.0, 9.0, 12)
    state = State(own={"weight": torch.ones(12)}, answer={}, moment={"weight": square})
    sync = SingleProcess(model)
    sync.load_state_dict({"steps": 2, **redistribute([state, state], 1)[0]})
    (model.weight * 0.0).sum().backward()
    assert model.weight.grad is not None
    assert torch.allclose(model.weight.grad.flatten(), unit_of(square), rtol=1e-6, atol=0.0)


def test_the_unit_is_the_root_with_a_floor_or_one() -> None:
    square = torch.tensor([0.0, 1e-6, 4.0, 36.0])
    assert torch.allclose(unit_of(square), torch.tensor([0.10001, 0.10001, 2.0, 6.0]), rtol=1e-4)
    for nothing in ([0.0] * 5, [1.0, math.inf], [math.nan, 1.0], []):
        assert unit_of(torch.tensor(nothing)).tolist() == [1.0] * len(nothing)


def test_squares_that_fp32_cannot_hold_are_forgotten() -> None:
    moment = Moment([slice(0, 2), slice(2, 4)], padded=6)
    changes = []
    for mean in ([3.0, 4.0, 1.0, 1.0], [1e30, 4.0, 1.0, 2.0], [0.5, 0.5, 1.0, 1.0]):
        proposed = torch.tensor([*mean, 0.0, 0.0])
        moment.propose(proposed)
        own, answer = torch.ones(6), torch.ones(3)
        moment.commit(proposed, own, answer, 1)
        assert torch.equal(answer, own[1:4])
        changes.append(own)
    assert changes[1].tolist()[:2] == [3.0, 4.0], "back to gradients' units"
    assert moment.square[:2].tolist() == [0.25, 0.25] and moment.unit[:2].tolist() == [0.5, 0.5], "begun anew"
    assert moment.square[2] == 1.0 and 1.0 < moment.square[3] < 1.2, "the other parameter went on"
    assert moment.unit[4:].tolist() == [1.0, 1.0]


@settings(deadline=None, max_examples=40)
@given(elements=st.integers(1, 400_000), seed=st.integers(0, 9), threads=st.sampled_from([2, 3]))
def test_the_unit_does_not_depend_on_the_number_of_threads(elements: int, seed: int, threads: int) -> None:
    square = torch.randn(elements, generator=torch.Generator().manual_seed(seed)).square()
    mean = float(square.sqrt().double().mean())
    found, before = [], torch.get_num_threads()
    for count in (1, threads):
        torch.set_num_threads(count)
        found.append(unit_of(square))
    torch.set_num_threads(before)
    assert torch.equal(*found)
    assert float(found[0].min()) >= FLOOR * mean * (1 - 1e-5)
    assert torch.equal(found[0], square.double().sqrt().float().clamp_min(float(found[0].min())))


@settings(deadline=None, max_examples=40)
@given(owners=st.integers(1, 4), bf16=st.booleans(), scale=st.sampled_from([1.0, 2.0**-10]))
def test_a_part_goes_out_in_its_unit_and_comes_back(owners: int, bf16: bool, scale: float) -> None:
    part = Carried([Run("a", 3, 0, 70), Run("b", 80, 70, 301)], owners=owners, granule=8, normalise=True)
    assert part.moment is not None
    part.moment.load(1, torch.linspace(1.0, 100.0, 301))
    kind = torch.bfloat16 if bf16 else torch.float32
    bucket = torch.randn(400, generator=torch.Generator().manual_seed(owners)).to(kind)
    before = bucket.clone()
    part.take(bucket, scale)
    (piece,) = part.values.pieces
    assert torch.equal(piece.tensor[:70], before[3:73].float() * scale), "a unit of one where nothing is known"
    unit = torch.linspace(1.0, 100.0, 301).double().sqrt().float()
    assert torch.equal(piece.tensor[70:371], before[80:381].float() * scale / unit)
    assert piece.tensor.numel() == part.layout.padded and not piece.tensor[371:].any()
    part.put(bucket, 1.0 / scale)
    assert torch.allclose(bucket.float(), before.float(), rtol=1e-2 if bf16 else 1e-6)
