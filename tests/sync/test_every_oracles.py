"""Training apart against loops that do the same by hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from every_runs import adamw, agreed, apart, fresh, local_step, parameters, sgd, walk
from squeezed_models import INT4, digest
from torch import nn

from ranks import Context, Pool
from trainingkit.sync.plain import SingleProcess

STEPS = 6


def every_one_dense(context: Context) -> dict[str, Any]:
    """every(1)|none, beside a loop of its arithmetic over all ranks' models in this process."""
    model = fresh()
    optimizer = sgd(model)
    workers = [fresh() for _ in range(context.world_size)]
    optimizers = [sgd(worker) for worker in workers]
    center = parameters(workers[0])
    furthest = 0.0
    with apart(context, model, optimizer, "every(1)|none") as sync:
        for step in range(STEPS):
            local_step(model, optimizer, step, context.rank)
            sync.commit()
            for rank, (worker, own) in enumerate(zip(workers, optimizers, strict=True)):
                local_step(worker, own, step, rank)
            for at, *locals_ in zip(center, *(worker.parameters() for worker in workers), strict=True):
                furthest = max(furthest, meet(at, [each.detach() for each in locals_]))
                for each in locals_:
                    each.data.copy_(at)
    return {"model": digest(list(model.parameters())), "center": digest(center), "ulp": furthest}


def meet(agreed: torch.Tensor, workers: list[torch.Tensor]) -> float:
    """agreed -= mean of (agreed - worker), in fp32 and rank order; how far that is from averaging, in ulp.

    An ulp is of the largest number that takes part in an element.
    """
    largest = torch.stack([agreed, *workers]).abs().amax(0)
    total = agreed - workers[0]
    for worker in workers[1:]:
        total += agreed - worker
    agreed.sub_(total * (1.0 / len(workers)))
    average = torch.stack(workers).double().mean(0)
    ulp = torch.nextafter(largest, torch.tensor(torch.inf)) - largest
    return float(((agreed.double() - average).abs() / ulp.clamp_min(1e-45)).max())


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_step_dense_is_the_loop_by_hand_bit_for_bit(pool: Pool, ranks: int) -> None:
    """And within 2 ulp of averaging the parameters."""
    ended = pool.run(every_one_dense, ranks)
    for one in ended:
        assert one["model"] == one["center"] == ended[0]["model"]
        assert one["ulp"] <= 2.0


def plainly(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> str:
    for step in range(steps):
        local_step(model, optimizer, step, 0)
    return digest(list(model.parameters()))


def one_worker(context: Context) -> list[str]:
    found = [plainly(model := fresh(), adamw(model), STEPS)]
    for text in ("every(3)|none", f"every(2, delay=1)|{INT4}"):
        model = fresh()
        optimizer = adamw(model)
        with apart(context, model, optimizer, text) as sync:
            assert isinstance(sync, SingleProcess)
            walk(sync, optimizer, context, range(STEPS))
        found.append(digest(list(model.parameters())))
    return found


def test_one_worker_that_takes_the_mean_trains_plainly(pool: Pool) -> None:
    plain, *others = pool.run(one_worker, 1)[0]
    assert others == [plain, plain]


OUTER = "outer_lr=0.7, outer_momentum=0.9, nesterov=true"


def outer_sgd(context: Context, lag: int, nesterov: bool) -> float:
    """Against torch.optim.SGD over the agreed model, whose gradient is the mean difference."""
    model = fresh()
    optimizer = sgd(model)
    workers = [fresh() for _ in range(context.world_size)]
    optimizers = [sgd(worker) for worker in workers]
    center = [nn.Parameter(p) for p in parameters(workers[0])]
    outer = torch.optim.SGD(center, lr=0.7, momentum=0.9, nesterov=nesterov)
    text = OUTER if nesterov else OUTER.replace(", nesterov=true", "")
    begun: list[list[torch.Tensor]] = []
    with apart(context, model, optimizer, f"every(3, tau={lag}, {text})|none") as sync:
        for step in range(11):
            local_step(model, optimizer, step, context.rank)
            sync.commit()
            for rank, (worker, own) in enumerate(zip(workers, optimizers, strict=True)):
                local_step(worker, own, step, rank)
            if begun and (step + 1 - lag) % 3 == 0:
                apply(workers, begun, center, outer)
            if (step + 1) % 3 == 0:
                begun = [parameters(worker) for worker in workers]
            if begun and not lag and (step + 1) % 3 == 0:
                apply(workers, begun, center, outer)
        ended = sync.state_dict()
    agreed = ended["agreed"]["parameters"].values()
    apart_by = [float((a - b.flatten()).abs().max()) for a, b in zip(agreed, center, strict=True)]
    own = workers[context.rank].parameters()
    return max(*apart_by, *(float((a - b).abs().max()) for a, b in zip(model.parameters(), own, strict=True)))


def apply(workers: list[nn.Module], begun: list[list[torch.Tensor]], center: Any, outer: torch.optim.Optimizer) -> None:
    for index, at in enumerate(center):
        at.grad = torch.stack([at.detach() - each[index] for each in begun]).mean(0)
    outer.step()
    for worker, before in zip(workers, begun, strict=True):
        for parameter, was, at in zip(worker.parameters(), before, center, strict=True):
            parameter.data.add_(at.detach() - was)
    begun.clear()


@pytest.mark.parametrize(
    ("ranks", "nesterov", "lag"), [(1, True, 0), (1, False, 3), (2, True, 0), (2, False, 2), (3, True, 3)]
)
def test_the_outer_step_is_torch_sgd(pool: Pool, ranks: int, nesterov: bool, lag: int) -> None:
    """One worker, too; at once and delayed, when a local model is corrected by as much as the agreed one has moved."""
    assert max(pool.run(outer_sgd, ranks, lag, nesterov)) < 1e-6


def held_wire(context: Context, text: str, free: int) -> list[float]:
    """The wire of every rank is held from step 3 on until `free` more steps are done: they must not wait for it."""
    model = fresh()
    optimizer = sgd(model)
    gate = threading.Event()
    waited = []
    with apart(context, model, optimizer, text) as sync:
        assert sync._wire is not None
        put = sync._wire.queue.put
        sync._wire.queue.put = (
            lambda stages, done: put(  # type: ignore[method-assign]
                [lambda: gate.wait() and stages[0](), *stages[1:]], done
            )
        )
        for step in range(3 + free):
            local_step(model, optimizer, step, context.rank)
            waited.append(sync.commit().waited_s)
        gate.set()
        walk(sync, optimizer, context, range(3 + free, 12))
        assert sync.stats()["rounds"] >= 3
    return waited


@pytest.mark.parametrize(("text", "free"), [(f"every(3, delay=1)|{INT4}", 2), (f"every(3, tau=2)|{INT4}", 1)])
def test_no_step_waits_for_a_delayed_round(pool: Pool, text: str, free: int) -> None:
    """Were one to wait, the run would not come back."""
    for waited in pool.run(held_wire, 2, text, free):
        assert waited == [0.0] * (3 + free)


def in_bf16(context: Context) -> dict[str, Any]:
    """Two rounds in which models move, then two in which they stand still."""
    model = fresh().to(torch.bfloat16)
    generator = torch.Generator().manual_seed(context.rank)
    seen = []
    with apart(context, model, sgd(model), "every(1)|none") as sync:
        for step in range(4):
            for p in model.parameters():
                p.data.add_(torch.randn(p.shape, generator=generator), alpha=0.1 if step < 2 else 0.0)
            sync.commit()
            seen.append(digest(agreed(sync)))
        finer = any(not torch.equal(v, v.bfloat16().float()) for v in agreed(sync).values())
    return {"seen": seen, "model": digest(list(model.parameters())), "finer": finer}


def test_the_agreed_model_of_bf16_workers_is_fp32(pool: Pool) -> None:
    """What a worker's rounding to bf16 leaves out is no difference: a model that stands still sends zeros."""
    ended = pool.run(in_bf16, 2)
    assert ended[0] == ended[1] and ended[0]["finer"]
    moved, more, *still = ended[0]["seen"]
    assert moved != more and still == [more, more]


def adopts(context: Context) -> list[bool]:
    """Models that went the same way elsewhere, as under DDP, are the agreed one from there on."""
    model = fresh()
    optimizer = sgd(model)
    with apart(context, model, optimizer, f"every(2)|{INT4}") as sync:
        walk(sync, optimizer, context, range(3))
        moved = [sync.settle(), sync.settle()]
        for p in model.parameters():
            p.data.add_(1.0)
        sync.adopt()
        same = all(torch.equal(v, p.flatten()) for v, p in zip(agreed(sync).values(), model.parameters(), strict=True))
        walk(sync, optimizer, context, range(4, 8))
    return [*moved, same, digest(list(model.parameters())) == digest(agreed_in_order(sync, model))]


def agreed_in_order(sync: Any, model: nn.Module) -> list[torch.Tensor]:
    found = agreed(sync)
    return [found[name] for name, _ in model.named_parameters()]


def test_a_model_that_is_the_same_everywhere_is_adopted(pool: Pool) -> None:
    assert pool.run(adopts, 2) == [[True, False, True, False]] * 2
