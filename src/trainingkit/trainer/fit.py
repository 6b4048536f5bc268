"""Training by recipe, in one rank: build what the recipe names, then the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from trainingkit.core import outcome
from trainingkit.core.logging import LOG
from trainingkit.core.runfolder import RunFolder
from trainingkit.data.contract import Corpus
from trainingkit.data.loader import Loader
from trainingkit.trainer.judge import Judge
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.loss import call_model
from trainingkit.trainer.rate import RecipeRate
from trainingkit.trainer.recipe import Recipe, load_recipe
from trainingkit.trainer.rng import seed_all
from trainingkit.trainer.session import Session, open_session


@dataclass(frozen=True)
class FitResult:
    """How training went in this rank.

    Args:
        metrics: the last evaluation.
        exit_code: 0 done, 75 stopped on request.
    """

    run: RunFolder
    steps: int
    metrics: dict[str, float]
    exit_code: int


class Trainer:
    """`trainingkit train` as an object. It joins the ranks that a launcher started; without one it trains alone.

    Args:
        recipe: path, bundled name, or a Recipe.
        overrides: `section.key=value` texts.
        run: an existing run folder to continue in, or where to put the run.

    Raises:
        ConfigError: the recipe cannot be used.
    """

    def __init__(
        self, recipe: str | Path | Recipe = "default", overrides: Iterable[str] = (), *, run: RunFolder | None = None
    ) -> None:
        self.recipe = recipe if isinstance(recipe, Recipe) else load_recipe(str(recipe), overrides)
        self._run = run

    def fit(self, *, capture: bool = False, joins: bool = False) -> FitResult:
        """Train to the end, or to an agreed stop. Leaves an outcome file for this rank in either case.

        Args:
            capture: send stderr, and on all ranks but 0 stdout, to the log file.
            joins: this rank is part of a job that holds the run folder already.

        Raises:
            TrainingKitError, or what the user's own code raised.
        """
        session = open_session(self.recipe, run=self._run, capture=capture, joins=joins)
        try:
            kit, corpus = self._build(session)
        except BaseException as error:
            outcome.leave_failure(session.run, session.rank, 0, error)
            LOG.error("the loop could not be built", exc_info=error)
            session.on_close()
            raise
        with kit:
            metrics = _train(kit, corpus, self.recipe)
        return FitResult(session.run, kit.step_number, metrics, kit.exit_code)

    def _build(self, session: Session) -> tuple[Kit, Corpus]:
        recipe = self.recipe
        corpus: Corpus = recipe.data_section().open()
        seed_all(recipe.run.seed)
        model: nn.Module = recipe.model_section().build(corpus.info).to(session.device)
        optimizer = recipe.optimizer_section().build(model)
        assert recipe.run.steps is not None
        rate = RecipeRate(optimizer, recipe.schedule_section(), recipe.run.steps)
        seed_all(recipe.run.seed + 1 + session.rank)
        return Kit(session, model, optimizer, recipe, rate=rate, data=corpus.info), corpus


def _train(kit: Kit, corpus: Corpus, recipe: Recipe) -> dict[str, float]:
    judge = Judge(kit, corpus, recipe.eval, batch_size=recipe.batch.size)
    kit.keep("judge", judge)
    kit.model.train()
    judge.start()
    if judge.lost_patience:
        kit.event("early_stop", f"Nothing left to do: no better loss in {recipe.eval.patience} evaluations before.")
    with contextlib.closing(_loader(kit, corpus, recipe)) as loader:
        for batch in () if judge.lost_patience else kit.batches(loader):
            kit.step(call_model, batch)
            judge.look()
            if judge.lost_patience:
                kit.event("early_stop", f"No better loss in {recipe.eval.patience} evaluations: stopping here.")
                break
    judge.finish()
    return judge.metrics


def _loader(kit: Kit, corpus: Corpus, recipe: Recipe) -> Loader:
    return Loader(
        corpus.train,
        batch_size=recipe.batch.size,
        seed=recipe.run.seed,
        rank=kit.rank,
        world_size=kit.world_size,
        threads=recipe.batch.threads,
        depth=recipe.batch.depth,
    )
