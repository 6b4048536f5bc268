"""One rank is plain training, and two ranks are the mean of two halves: bit for bit, against loops written out here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_runs import Net, batches, digest, loss_fn, losses, train_rank

from ranks import Pool
from trainingkit.core.runfolder import RunFolder
from trainingkit.data.loader import Loader
from trainingkit.trainer.fit import Trainer
from trainingkit.trainer.loading import load_trained
from trainingkit.trainer.recipe import Recipe, load_recipe

TINY = Path(__file__).with_name("tiny.toml")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny(*overrides: str) -> Recipe:
    return load_recipe(str(TINY), ["workers=1", "run.threads=1", *overrides])


def plain_training(recipe: Recipe) -> tuple[torch.nn.Module, list[float]]:
    """AdamW by hand with warm-up, cosine and clipping; nothing of the trainer but its data and its model."""
    steps, accumulate, warmup = recipe.run.steps or 0, recipe.step.accumulate, recipe.schedule["warmup_steps"]
    corpus = recipe.data_section().open()
    torch.manual_seed(recipe.run.seed)
    model = recipe.model_section().build(corpus.info)
    wide = [p for p in model.parameters() if p.dim() >= 2]
    thin = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": thin, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    loader = Loader(corpus.train, recipe.batch.size, recipe.run.seed, threads=0)
    bf16 = recipe.precision.compute == "bf16"
    seen = []
    model.train()
    for update in range(steps):
        done = (update - warmup) / (steps - warmup)
        factor = (update + 1) / warmup if update < warmup else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * factor
        optimizer.zero_grad()
        total = torch.zeros(accumulate)
        for micro in range(accumulate):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                loss = model(**next(loader)).loss
            (loss / accumulate).backward()
            total[micro] = loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append(float(total.mean()))
    return model, seen


@pytest.mark.parametrize(("compute", "accumulate"), [("fp32", 1), ("fp32", 3), ("bf16", 1)])
def test_one_rank_is_plain_training(tmp_path: Path, compute: str, accumulate: int) -> None:
    recipe = tiny(f"precision.compute={compute}", f"step.accumulate={accumulate}", "run.steps=6")
    result = Trainer(recipe, run=RunFolder(tmp_path)).fit()
    model, seen = plain_training(recipe)
    assert (result.steps, result.exit_code) == (6, 0)
    assert list(losses(tmp_path).values()) == seen
    trained = load_trained(tmp_path)
    assert trained.step == 6
    assert digest(trained.model.state_dict()) == digest(model.state_dict())


def mean_of_halves(steps: int, accumulate: int) -> dict[str, str]:
    """Each rank's gradient by its own backward, then their mean, clipped, into one AdamW."""
    torch.manual_seed(1)
    model = Net(0.0, norm=False)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.02)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    data = [batches(7, rank=rank) for rank in range(2)]
    for step in range(steps):
        halves = []
        for part in data:
            optimizer.zero_grad()
            for micro in range(accumulate):
                (loss_fn(model, part[(step * accumulate + micro) % 7]) / accumulate).backward()
            halves.append([p.grad.clone() for p in parameters if p.grad is not None])
        for parameter, first, second in zip(parameters, *halves, strict=True):
            parameter.grad = first / 2 + second / 2
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        rate.step()
    return {"model": digest(model.state_dict()), "optimizer": digest(optimizer.state_dict())}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_ranks_are_the_mean_of_two_halves(pool: Pool, tmp_path: Path, accumulate: int) -> None:
    settings = {"run": {"steps": 8}, "step": {"accumulate": accumulate}}
    options = {"loader": "listed", "dropout": 0.0, "norm": False}
    ended = pool.run(train_rank, 2, str(tmp_path), settings, options)
    expected = mean_of_halves(8, accumulate)
    for rank in range(2):
        assert {key: ended[rank][key] for key in expected} == expected
