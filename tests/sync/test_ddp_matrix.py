"""Whatever DDP was told and whatever the model is: the right mean, the same bits on all ranks, every step.

Two oracles per cell. With an fp32 codec the squeezed gradient is plain DDP's, up to the order of a sum; what travels
in bf16 is off by one rounding. With int4, what was sent over the steps is plain DDP's sum but for what is still owed.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_cells import CELLS, Cell
from squeezed_models import INT4, batch, digest, gradients, loss_of, net, squeezed, train, wrapped
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import ConfigError, StepError
from trainingkit.sync.doors import squeeze
from trainingkit.sync.exempt import squeezed_names

STEPS = 6
Grads = list[dict[str, torch.Tensor]]


def run_cell(context: Context, name: str) -> dict[str, Any]:
    cell = CELLS[name]
    plain, _ = _train(cell, context, "none")
    exact, _ = _train(cell, context, "all|fp32")
    coarse, facts = _train(cell, context, INT4)
    names = squeezed_names(cell.model())
    largest = {
        n: max(float(step[n].abs().max()) for step in plain if n in step and step[n].numel()) for n in _all(plain)
    }
    off = {n: _furthest(plain, exact, n) / max(largest[n], 1e-9) for n in largest}
    total = {n: (_sum(plain, n) - _sum(coarse, n)).abs().max() / max(largest[n], 1e-9) for n in largest}
    return {
        "squeezed": {n: off[n] for n in off if n in names},
        "exempt": {n: off[n] for n in off if n not in names},
        "total": {n: float(value) for n, value in total.items()},
        "same": [digest(step) for step in coarse],
        "shown": [sorted(step) for step in coarse] == [sorted(step) for step in plain],
        "bytes": facts["bytes"],
        "plain_bytes": facts["fp32_bytes"],
        "names": sorted(names),
    }


def _train(cell: Cell, context: Context, codec: str) -> tuple[Grads, dict[str, Any]]:
    model = cell.model()
    ddp = wrapped(model, **{"find_unused_parameters": False, **cell.options})
    seen: Grads = []
    sent: list[int] = []
    with squeezed(ddp, codec) as sync:
        for step in range(STEPS):
            ddp.zero_grad()
            sync.begin()
            for micro in range(cell.micro_batches):
                with sync.micro_batch(last=micro == cell.micro_batches - 1):
                    cell.loss(ddp, cell.micro_batches * step + micro, context.rank).backward()
            if cell.clip:
                nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)
            seen.append({n: p.grad.float().clone() for n, p in model.named_parameters() if p.grad is not None})
            sent.append(sync.commit().wire_bytes)
        facts = sync.describe()
    return seen, {"bytes": sent, "fp32_bytes": facts["fp32_bytes"]}


def _all(steps: Grads) -> list[str]:
    return sorted({name for step in steps for name, value in step.items() if value.numel()})


def _sum(steps: Grads, name: str) -> torch.Tensor:
    return torch.stack([step[name] for step in steps if name in step]).sum(dim=0)


def _furthest(steps: Grads, others: Grads, name: str) -> float:
    return max(float((a[name] - b[name]).abs().max()) for a, b in zip(steps, others, strict=True) if name in a)


@pytest.mark.parametrize("name", CELLS)
def test_each_cell(pool: Pool, name: str) -> None:
    cell = CELLS[name]
    ended = pool.run(run_cell, 3, name)
    for one in ended:
        assert one["shown"], "the same parameters have gradients as with plain DDP"
        assert max(one["squeezed"].values(), default=0.0) <= cell.rtol
        assert max(one["exempt"].values(), default=0.0) <= max(cell.rtol, 2.0**-6), "bf16, and what was owed of it"
        assert one["same"] == ended[0]["same"], "same bits on all ranks, in every step"
        assert bool(one["names"]) == cell.squeezes
        dense, later = one["bytes"][: cell.dense_steps], one["bytes"][cell.dense_steps :]
        assert len(later) == STEPS - cell.dense_steps and len(set(later)) == 1, "fixed sizes"
        if cell.squeezes:
            assert later[0] < 0.62 * one["plain_bytes"]
            assert all(sent > later[0] for sent in dense)
    if not cell.clip:
        lost = max(ended[0]["total"].values())
        assert lost <= 1.0, "over all steps, int4 is off by what is owed: less than one step's largest gradient"


def static_graph_with_accumulation(context: Context, codec: str) -> list[str]:
    """The first backward of a static graph may not be a local one; later ones may."""
    ddp = wrapped(net(), static_graph=True, find_unused_parameters=False)
    seen = []
    with squeezed(ddp, codec) as sync:
        for step in range(STEPS):
            ddp.zero_grad()
            for micro in range(2 if step else 1):
                with sync.micro_batch(last=micro == 1 or not step):
                    loss_of(ddp, batch(2 * step + micro, context.rank)).backward()
            sync.commit()
            seen.append(digest(gradients(ddp)))
    return seen


def test_a_static_graph_with_accumulation_goes_on_reducing(pool: Pool) -> None:
    """PyTorch issue 187732: reduction stopped silently from the second iteration on."""
    ended = pool.run(static_graph_with_accumulation, 3, INT4)
    assert ended == [ended[0]] * 3
    assert len(set(ended[0])) == STEPS


def never_exchanges(context: Context) -> str:
    ddp = wrapped(net())
    with squeezed(ddp) as sync:
        train(ddp, context, range(1))
        sync.begin()
        with sync.micro_batch(last=False):
            loss_of(ddp, batch(1, context.rank)).backward()
        try:
            sync.commit()
        except StepError as error:
            return str(error)
    return ""


def test_a_step_without_an_exchange_is_no_step(pool: Pool) -> None:
    for told in pool.run(never_exchanges, 2):
        assert told.startswith("No gradient was exchanged since the last step.")
        assert "the very first backward must not be under no_sync" in told


def no_rebuild_warning(context: Context) -> tuple[list[str], int]:
    """A default DDP: two dense steps, then its final buckets, seen once."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trainingkit").addHandler(handler)
    ddp = DistributedDataParallel(net(), bucket_cap_mb=0.05)
    with squeezed(ddp) as sync:
        train(ddp, context, range(5))
        steps = sync.stats()["steps"]
    logging.getLogger("trainingkit").removeHandler(handler)
    return said, steps


def test_a_loop_that_says_nothing_is_squeezed_after_the_rebuild(pool: Pool) -> None:
    assert pool.run(no_rebuild_warning, 3) == [([], 5)] * 3


def two_models(context: Context) -> bool:
    """Two squeezed models in one process, trained in turn, are each as if alone."""

    def both(together: bool) -> list[list[str]]:
        models = [wrapped(net(seed)) for seed in (1, 2)]
        seen: list[list[str]] = [[], []]
        if together:
            with squeezed(models[0]), squeezed(models[1], "topk(density=0.05, chunk=4096)|int4", warmup_steps=1):
                for step in range(4):
                    for index, model in enumerate(models):
                        seen[index] += train(model, context, range(step, step + 1))
            return seen
        with squeezed(models[0]):
            seen[0] = train(models[0], context, range(4))
        with squeezed(models[1], "topk(density=0.05, chunk=4096)|int4", warmup_steps=1):
            seen[1] = train(models[1], context, range(4))
        return seen

    return both(True) == both(False)


def test_two_models_in_one_process(pool: Pool) -> None:
    assert pool.run(two_models, 3) == [True] * 3


def in_two_groups(context: Context) -> list[str]:
    """Two pairs of ranks, each with a DDP over a group of its own (a replica axis beside others)."""
    pairs = [dist.new_group(ranks, backend="gloo") for ranks in ([0, 1], [2, 3])]
    ddp = wrapped(net(), process_group=pairs[context.rank // 2])
    with squeezed(ddp) as sync:
        assert sync.describe()["exchange"] == "gather"
        return train(ddp, context, range(3))


def test_a_group_that_is_not_the_whole_job(pool: Pool) -> None:
    ended = pool.run(in_two_groups, 4)
    assert ended[0] == ended[1] and ended[2] == ended[3] and ended[0] != ended[2]


def refused(context: Context, what: str) -> str:
    models = {
        "not DDP": net,
        "sparse": lambda: DistributedDataParallel(nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2))),
        "float64": lambda: DistributedDataParallel(net().double()),
        "twice": lambda: wrapped(net()),
        "codec": lambda: wrapped(net()),
    }
    model = models[what]()
    try:
        if what == "twice":
            with squeezed(model):
                squeeze(model, INT4)
        squeeze(model, "all|int5" if what == "codec" else INT4)
    except ConfigError as error:
        return str(error)
    return "not refused"


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        (
            "not DDP",
            ["Only a model in DistributedDataParallel can be squeezed", "found:     Sequential", "Wrap it first"],
        ),
        ("sparse", ["Sparse gradients cannot be squeezed", "found:     0", "Build the embedding with sparse=False"]),
        (
            "float64",
            ["fp32 cannot hold", "0.weight (float64), 0.bias (float64), 1.weight (float64) and", "model.float()"],
        ),
        ("twice", ["DDP does not take the hook", "a DDP object takes one hook in its life"]),
        ("codec", ["There is no quantiser called 'int5'", "Did you mean 'int"]),
    ],
)
def test_what_cannot_be_squeezed_is_refused_at_the_start(pool: Pool, what: str, texts: list[str]) -> None:
    for told in pool.run(refused, 2, what):
        for text in texts:
            assert text in told


def compiled(context: Context) -> dict[str, Any]:
    """The same model compiled and not: same names in the state, same parameters squeezed, same bits on all ranks."""
    torch._dynamo.reset()
    model = net()
    eager: Any = torch.compile(model, backend="eager")
    ddp = DistributedDataParallel(eager, find_unused_parameters=True)
    with squeezed(ddp) as sync:
        seen = train(ddp, context, range(3))
        names = sorted(sync.state_dict()["own"])
    assert squeezed_names(ddp.module) == squeezed_names(model)
    return {"seen": seen, "names": names, "plain": sorted(name for name, _ in model.named_parameters())}


def test_a_compiled_model_keeps_its_names(pool: Pool) -> None:
    ended = pool.run(compiled, 2)
    assert ended[0] == ended[1]
    assert ended[0]["names"] == ended[0]["plain"]


def uneven(context: Context) -> list[str]:
    """Ranks have other numbers of batches; DDP's `join` lets the early ones answer with zeros."""
    ddp = wrapped(net(), find_unused_parameters=False)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with squeezed(ddp) as sync:
        with ddp.join():
            for step in range(3 + context.rank):
                optimizer.zero_grad()
                loss_of(ddp, batch(step, context.rank)).backward()
                optimizer.step()
        return [digest(list(ddp.parameters())), str(sync.stats()["steps"])]


def test_ranks_that_run_out_of_data_join(pool: Pool) -> None:
    ended = pool.run(uneven, 3)
    assert ended == [ended[0]] * 3
    assert ended[0][1] == "5"


def test_a_failure_of_one_rank_names_it(pool: Pool) -> None:
    with pytest.raises(RankFailed, match="There is no quantiser"):
        pool.run(_bad_codec, 2)


def _bad_codec(context: Context) -> None:
    squeeze(wrapped(net()), "all|int5")
