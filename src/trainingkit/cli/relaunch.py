"""Workers of our own launch, started again when one of them dies.

Each attempt is a launch of its own through torchrun's elastic API: a fresh agent with a fresh store, in which no worker
can read the address of a dead one. Workers go on from the newest whole snapshot by themselves.

    a worker dies (killed, crashed, frozen), or an exchange fails between living ones      started again
    a worker raises an error of its own                                                    not: it would come again
    a request to stop                                                                      not
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainingkit.core import decisions, exitcodes, outcome
from trainingkit.core.outcome import Outcome, Verdict
from trainingkit.core.runfolder import RunFolder

if TYPE_CHECKING:
    from trainingkit.trainer.recipe import Recipe

WORKER_MODULE = "trainingkit.trainer.worker"


@dataclass(frozen=True)
class Attempt:
    """How one launch ended.

    Args:
        lost: ranks that died first, without being able to say so.
        again: whether starting again can help.
        step: the last step that a rank is known to have done; 0 where none had the time to say it.
    """

    verdict: Verdict
    lost: tuple[int, ...] = ()
    again: bool = False
    step: int = 0


def train_on_workers(recipe: Recipe, run: RunFolder, *, say: Callable[[str], None]) -> Verdict:
    """Train on the recipe's workers, started again at most `run.restarts` times.

    Args:
        say: told in a line when workers are started again, and when a Ctrl-C is passed on.
    """
    workers, least = recipe.workers, recipe.run.min_workers or recipe.workers
    attempt = _launch_once(recipe, run, workers, say)
    for number in range(1, recipe.run.restarts + 1):
        if not attempt.again:
            break
        remaining = max(min(workers, least), workers - len(attempt.lost))
        _tell(run, attempt, number, recipe.run.restarts, (workers, remaining), say)
        workers = remaining
        outcome.clear(run)
        attempt = _launch_once(recipe, run, workers, say)
    return attempt.verdict


def judged(outcomes: dict[int, Outcome], workers: int, crashed: dict[int, str]) -> Attempt:
    """What a launch without a request to stop came to.

    Args:
        crashed: ranks that ended with another exit code than 0, and how; also those that left an outcome before.
    """
    silent = {rank: how for rank, how in crashed.items() if rank not in outcomes}
    verdict = outcome.verdict(outcomes, workers, silent)
    failures = [found for found in outcomes.values() if found.status == "failed"]
    first_hand = any(not found.secondary for found in failures)
    failed = verdict.exit_code not in (exitcodes.DONE, exitcodes.PREEMPTED)
    return Attempt(
        verdict, tuple(sorted(silent)), failed and not first_hand, max((found.step for found in failures), default=0)
    )


def _launch_once(recipe: Recipe, run: RunFolder, workers: int, say: Callable[[str], None]) -> Attempt:
    from trainingkit.cluster.launch import launch
    from trainingkit.cluster.threads import threads_per_worker

    result = launch(
        ("-m", WORKER_MODULE, str(run.root)),
        workers=workers,
        threads=threads_per_worker(workers, wanted=recipe.run.threads),
        grace_s=recipe.run.grace_s,
        on_interrupt=lambda: say("Finishing this step and saving. Ctrl-C again ends at once, without saving."),
    )
    outcomes = outcome.read(run)
    attempt = judged(outcomes, workers, result.crashed)
    if result.signal is None:
        return attempt
    if _cut_short(outcomes, workers):
        text = f"Stopped by {result.signal.name} before every rank could finish a step and save."
        return Attempt(Verdict(exitcodes.PREEMPTED, "preempted", text))
    return Attempt(attempt.verdict)


def _cut_short(outcomes: dict[int, Outcome], workers: int) -> bool:
    """True when no rank failed by itself, but some did not get to save."""
    failures = [found for found in outcomes.values() if found.status == "failed"]
    return all(found.secondary for found in failures) and len(outcomes) - len(failures) < workers


def _tell(
    run: RunFolder, attempt: Attempt, number: int, most: int, workers: tuple[int, int], say: Callable[[str], None]
) -> None:
    before, after = workers
    first = attempt.verdict.message.splitlines()[0]
    reason = f"{first} Restart {number} of at most {most}."
    if after < before:
        reason += f" {after} of {before} workers go on."
    decisions.record(run.decisions, step=attempt.step, choice="restart", value={"workers": after}, reason=reason)
    say(reason)
