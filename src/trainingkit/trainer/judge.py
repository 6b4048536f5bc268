"""When to evaluate during training, and when to stop because the loss no longer gets better."""

from __future__ import annotations

from typing import Any

from trainingkit.data.contract import Corpus
from trainingkit.data.evaluation import eval_batches
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.sections import EvalSection


class Judge:
    """Evaluates at the recipe's steps and counts evaluations without a better loss.

    Metrics are summed over ranks, so all ranks judge alike.
    """

    def __init__(self, kit: Kit, corpus: Corpus, section: EvalSection, *, batch_size: int) -> None:
        self._kit = kit
        self._corpus = corpus
        self._section = section
        self._batch_size = batch_size
        self._best: float | None = None
        self._worse = 0
        self._seen_step = -1
        self.metrics: dict[str, float] = {}

    @property
    def lost_patience(self) -> bool:
        """True after `patience` evaluations in a row without a better loss."""
        return 0 < self._section.patience <= self._worse

    def start(self) -> None:
        """Evaluate the untrained model; or, resumed right after a step that was due, what the stop prevented."""
        if self._kit.step_number == 0:
            self._evaluate()
        else:
            self.look()

    def look(self) -> None:
        """Evaluate if this step is due."""
        step = self._kit.step_number
        due = self._section.every > 0 and step % self._section.every == 0
        if due and self._seen_step != step and not self._kit.stopped:
            self._evaluate()

    def finish(self) -> None:
        """Evaluate the trained model, unless that was just done or the run was stopped.

        Where ranks train apart they come to one model first, so that it is the one that is saved.
        """
        if self._kit.stopped:
            return
        moved = self._kit.settle()
        if moved or self._seen_step != self._kit.step_number:
            self._evaluate()

    def state_dict(self) -> dict[str, Any]:
        """Best loss, patience used, last step evaluated and its metrics."""
        return {"best": self._best, "worse": self._worse, "seen_step": self._seen_step, "metrics": self.metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue there."""
        self._best, self._worse = state_dict["best"], state_dict["worse"]
        self._seen_step, self.metrics = state_dict["seen_step"], state_dict["metrics"]

    def _evaluate(self) -> None:
        kit = self._kit
        batches = eval_batches(
            self._corpus.validation, self._batch_size, kit.rank, kit.world_size, self._section.samples or None
        )
        self.metrics = kit.evaluate(batches)
        self._seen_step = kit.step_number
        if self._best is None or self.metrics["loss"] < self._best:
            self._best, self._worse = self.metrics["loss"], 0
        else:
            self._worse += 1
