"""A rank that measures a recipe: its peers, its share of the data, its model as training will wrap it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainingkit.bench.advise.computing import Stopwatch, Work
from trainingkit.bench.advise.facts import Facts
from trainingkit.bench.advise.measure import Tell, measure
from trainingkit.cluster.allocator import keep_freed_memory
from trainingkit.cluster.machine import has_fast_bf16
from trainingkit.cluster.meeting import join, leave
from trainingkit.cluster.place import Place
from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core.errors import ConfigError
from trainingkit.data.contract import Corpus
from trainingkit.data.loader import Loader
from trainingkit.precision.compute import choose_compute
from trainingkit.sync.auto.forecast import Link
from trainingkit.sync.auto.ladder import MAX_EVERY, whole_ladder
from trainingkit.sync.plain import wrap
from trainingkit.trainer.recipe import Recipe
from trainingkit.trainer.rng import seed_all
from trainingkit.trainer.session import choose_device

JOIN_S, TIMEOUT_S = 120.0, 300.0
BATCHES = 4


@dataclass(frozen=True)
class Wish:
    """What is asked of the ranks.

    Args:
        ranks: of the job that is asked about; None: those that measure.
        link: where it is known; None: measure it.
    """

    ranks: int | None = None
    link: Link | None = None

    def to_table(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)

    @staticmethod
    def from_table(table: dict[str, Any]) -> Wish:
        """From `to_table`."""
        link = table["link"]
        return Wish(table["ranks"], None if link is None else Link(**link))


def measure_recipe(recipe: Recipe, place: Place, wish: Wish, tell: Tell) -> Facts:
    """Join the other ranks, measure, leave. All ranks call it.

    Args:
        place: in a launch.

    Raises:
        ConfigError: the recipe computes on a GPU, where this cannot time it.
        ClusterError: ranks are missing.
    """
    _check_device(recipe, place)
    threads = threads_per_worker(place.local_world_size, wanted=recipe.run.threads)
    torch.set_num_threads(threads)
    keep_freed_memory()
    meeting = join(place, join_s=JOIN_S, timeout_s=TIMEOUT_S)
    assert meeting is not None
    try:
        tell("warm-up", 0.0)
        watch = Stopwatch(work_of(recipe, place), meeting.group)
        watch.warm()
        ranks = wish.ranks or place.world_size
        rungs = whole_ladder(recipe.sync.max_every or MAX_EVERY)
        return measure(watch, meeting.group, rungs, ranks=ranks, link=wish.link, tell=tell)
    finally:
        leave()


def work_of(recipe: Recipe, place: Place) -> Work:
    """A step of the recipe on this rank."""
    corpus: Corpus = recipe.data_section().open()
    seed_all(recipe.run.seed)
    model: nn.Module = recipe.model_section().build(corpus.info)
    compute, _ = choose_compute(recipe.precision, torch.device("cpu"), cpu_has_bf16=has_fast_bf16())
    loader = Loader(
        corpus.train,
        batch_size=recipe.batch.size,
        seed=recipe.run.seed,
        rank=place.rank,
        world_size=place.world_size,
        threads=recipe.batch.threads,
        depth=recipe.batch.depth,
    )
    with contextlib.closing(loader):
        batches = list(itertools.islice(loader, BATCHES))

    def wrapped(module: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
        return wrap(module, group, bucket_mb=recipe.sync.bucket_mb)

    return Work(
        model=model.train(),
        optimizer=recipe.optimizer_section().build(model),
        batches=batches,
        wrap=wrapped,
        accumulate=recipe.step.accumulate,
        clip_norm=recipe.step.clip_norm or None,
        compute=compute,
    )


def _check_device(recipe: Recipe, place: Place) -> None:
    device = choose_device(recipe.run.device, place.local_rank)
    if device.type == "cpu":
        return
    raise ConfigError(
        "Steps on a GPU are not timed here.",
        field="run.device",
        found=str(device),
        expected="a recipe that computes on the CPU, or numbers",
        next_step="Give them: --params 7e9 --step 2.5s --link 10gbit --ranks 8; or --set run.device='\"cpu\"'.",
    )
