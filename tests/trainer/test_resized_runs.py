"""A run goes on with another number of ranks: what is owed stays the same sum, and the data go on where they stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import FEATURES, config, digest, events, losses, open_rank
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from ranks import Context, Pool
from trainingkit.data import SampleOrder
from trainingkit.data.loader import Loader
from trainingkit.sync.residualstate import pending, state_in
from trainingkit.trainer.kit import Kit

INT4, TOPK = "all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4"
SAMPLES, BATCH = 70, 3
SEED = 5


class Numbered:
    """Sample i is a point that is its own, with i beside it."""

    def __len__(self) -> int:
        return SAMPLES

    def sample(self, index: int) -> dict[str, np.ndarray]:
        point = np.random.default_rng(index).standard_normal(FEATURES).astype(np.float32)
        return {"x": point, "y": np.array(int(point[0] > 0)), "index": np.array(index)}


def wide() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 3))


def train(context: Context, folder: str, codec: str, steps: int) -> dict[str, Any]:
    """A stretch of a run up to step `steps`: the indices of each step's samples here, and what is owed when it ends."""
    warmup = {} if codec == "auto" else {"warmup_steps": 1}
    sync = {"codec": codec, **warmup, "bucket_mb": 0.02, "islands": "off"}
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(2 + context.rank)
    used: dict[int, list[int]] = {}
    loader = Loader(Numbered(), BATCH, SEED, context.rank, context.world_size, threads=0)
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": steps}, sync=sync)) as kit:
        begun = kit._engine.sync.state_dict()
        drawn = digest(torch.get_rng_state())
        for batch in kit.batches(loader):
            used[kit.step_number + 1] = batch["index"].tolist()
            kit.step(lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["y"]), batch)
        ended = kit._engine.sync.state_dict()
    weights = {name: values.clone() for name, values in model.state_dict().items()}
    return {"model": digest(weights), "weights": weights, "used": used, "begun": begun, "ended": ended, "drawn": drawn}


def owed(states: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {name: values for name, values in pending([state_in(state) for state in states]).items() if values.any()}


@pytest.mark.parametrize(
    "codec", [INT4, "none", *(pytest.param(each, marks=pytest.mark.slow) for each in (TOPK, "auto"))]
)
def test_four_two_three_four(pool: Pool, tmp_path: Path, codec: str) -> None:
    used: list[int] = []
    before: dict[str, torch.Tensor] = {}
    steps = 0
    for ranks in (4, 2, 3, 1, 4):
        steps += 3
        ended = pool.run(train, ranks, str(tmp_path), codec, steps)
        assert len({each["model"] for each in ended}) == 1
        now = owed([each["begun"] for each in ended])
        assert set(now) == set(before)
        for name, values in before.items():
            torch.testing.assert_close(now[name], values, rtol=1e-6, atol=1e-9)
        before = owed([each["ended"] for each in ended])
        assert codec == "auto" or bool(before) == (codec != "none" and ranks > 1)
        assert len({each["drawn"] for each in ended}) == ranks, "no two ranks draw the same numbers"
        for step in range(steps - 2, steps + 1):
            used += [index for each in ended for index in each["used"][step]]
    assert used == SampleOrder(SAMPLES, SEED).indices(0, 3 * BATCH * (4 + 2 + 3 + 1 + 4)).tolist()
    epoch = used[:SAMPLES]
    assert sorted(epoch) == list(range(SAMPLES)), "every sample of the epoch once"
    told = [text for _, event, text in events(tmp_path) if event == "resume" and "The snapshot is of" in text]
    assert told[0].startswith("The snapshot is of 4 ranks and 2 go on: what was owed is owed by all of them.")
    assert "1 new rank with random numbers of their own" in told[1] and len(told) == 4
    assert sorted(losses(tmp_path)) == list(range(1, steps + 1))


def oracle(schedule: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """The same global batches in one plain loop: (ranks, steps) after each other."""
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    order, at, data = SampleOrder(SAMPLES, SEED), 0, Numbered()
    for ranks, steps in schedule:
        for _ in range(steps):
            found = [data.sample(int(index)) for index in order.indices(at, ranks * BATCH)]
            at += ranks * BATCH
            x, y = (torch.from_numpy(np.stack([each[name] for each in found])) for name in "xy")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model.state_dict()


def test_a_resized_plain_run_is_the_plain_loop_over_the_same_batches(pool: Pool, tmp_path: Path) -> None:
    schedule = [(4, 3), (2, 3), (3, 3), (4, 3)]
    ended, steps = [], 0
    for ranks, more in schedule:
        steps += more
        ended = pool.run(train, ranks, str(tmp_path), "none", steps)
    for name, values in oracle(schedule).items():
        torch.testing.assert_close(ended[0]["weights"][name], values, rtol=1e-5, atol=1e-6)


def walk(context: Context, folder: str, steps: int, sampled: bool) -> list[int]:
    """Samples that a loader of torch's gives this rank."""
    data = [(torch.randn(FEATURES), index) for index in range(24)]
    if sampled:
        sampler = DistributedSampler(data, context.world_size, context.rank, seed=3)  # type: ignore[arg-type]
        loader: Any = DataLoader(data, batch_size=2, sampler=sampler)  # type: ignore[arg-type]
    else:
        loader = [(x[None], torch.tensor([index])) for x, index in data][context.rank :: context.world_size]
    model = nn.Linear(FEATURES, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    used: list[int] = []
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": steps})) as kit:
        for batch in kit.batches(loader):
            used += batch[1].tolist()
            kit.step(lambda m, b: m(b[0]).square().mean(), batch)
    return used


@pytest.mark.parametrize(("first", "then", "again"), [(2, 3, 0), (3, 2, 0), (3, 2, 1)])
def test_behind_a_distributed_sampler(pool: Pool, tmp_path: Path, first: int, then: int, again: int) -> None:
    """Where the batches so far divide by the new number of ranks, none is given out twice."""
    done = {(2, 0): 3, (3, 0): 2, (3, 1): 1}[first, again]
    left = -(-(12 - first * done) // then) + (1 if again else 0)
    before = pool.run(walk, first, str(tmp_path), done, True)
    after = pool.run(walk, then, str(tmp_path), done + left, True)
    seen = sorted(index for rank in (*before, *after) for index in rank)
    told = [text for _, event, text in events(tmp_path) if event == "data"]
    if again:
        assert told == ["Batches of this pass that come again: 1; 1 on each of 3 ranks do not divide by 2."]
        assert set(seen) == set(range(24))
    else:
        assert not told and seen == list(range(24))


def test_a_loader_that_cannot_be_shared_anew_is_named(pool: Pool, tmp_path: Path) -> None:
    pool.run(walk, 2, str(tmp_path), 3, False)
    pool.run(walk, 3, str(tmp_path), 5, False)
    told = [text for _, event, text in events(tmp_path) if event == "data"]
    assert len(told) == 1 and told[0].startswith("The loader's position was kept by 2 ranks and 3 go on: some samples")
