"""A finished or stopped run's model, read back for evaluation and export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainingkit.cluster.machine import has_fast_bf16
from trainingkit.core.errors import CheckpointError, ConfigError, TrainingKitError
from trainingkit.core.logging import LOG
from trainingkit.core.runfolder import RunFolder
from trainingkit.data.contract import Corpus
from trainingkit.data.evaluation import eval_batches
from trainingkit.precision.compute import choose_compute
from trainingkit.recovery import Found, find, load, newest_good
from trainingkit.recovery.names import model_tensors
from trainingkit.trainer.advice import no_whole_snapshot
from trainingkit.trainer.evaluate import evaluate
from trainingkit.trainer.recipe import Recipe, load_run_recipe


@dataclass(frozen=True)
class Trained:
    """A model as a snapshot holds it, with what it was trained on."""

    run: RunFolder
    recipe: Recipe
    corpus: Corpus
    model: nn.Module
    step: int


def load_trained(path: Path, *, step: int | None = None) -> Trained:
    """Build the run's model and fill it from a snapshot: that of `step`, or the newest whole one.

    Raises:
        RunFolderError: no run there.
        ConfigError: there is no snapshot of `step`; the message lists those that exist.
        CheckpointError: the snapshot of `step` is damaged, or without `step` none is whole.
    """
    run = RunFolder.existing(path)
    recipe = load_run_recipe(run)
    found = _pick(run, step)
    corpus: Corpus = recipe.data_section().open()
    model = recipe.model_section().build(corpus.info)
    load(found.path, {f"model/{name}": tensor for name, tensor in model_tensors(model).items()}, only="model/")
    return Trained(run, recipe, corpus, model, found.step)


def evaluate_run(path: Path, *, step: int | None = None, samples: int | None = None) -> dict[str, Any]:
    """`step`, `metrics` and `samples` of a run's model on its validation data, in this process."""
    trained = load_trained(path, step=step)
    device = torch.device("cpu")
    compute, _ = choose_compute(trained.recipe.precision, device, cpu_has_bf16=has_fast_bf16())
    batches = eval_batches(trained.corpus.validation, trained.recipe.batch.size, limit=samples)
    info = trained.corpus.info
    metrics, count = evaluate(trained.model, batches, info=info, group=None, compute=compute, device=device)
    return {"step": trained.step, "metrics": metrics, "samples": count}


def _pick(run: RunFolder, step: int | None) -> Found:
    if step is None:
        good, damaged = newest_good(run.snapshots)
        for place in damaged:
            LOG.warning("The snapshot of step %d is damaged and was passed over: %s", place.step, place.problem)
        if good is not None:
            return good
        raise no_whole_snapshot(run, damaged)
    known = find(run.snapshots)
    here = [place for place in known if place.step == step and not place.unfinished]
    whole = next((place for place in here if place.problem is None), None)
    if whole is None:
        raise _not_there(step, here, sorted({place.step for place in known if place.problem is None}))
    return whole


def _not_there(step: int, here: list[Found], whole: list[int]) -> TrainingKitError:
    """No snapshot of that step: bad input where there never was one, a damaged file where there is."""
    kind = CheckpointError if here else ConfigError
    return kind(
        f"There is no whole snapshot of step {step}.",
        field="--step",
        found=here[0].problem if here else "none",
        expected="one of " + ", ".join(map(str, whole)) if whole else "a step that was saved; none was",
        next_step="Choose one of these, or leave --step out to take the newest." if whole else "Train the run first.",
    )
