"""What was asked of `trainingkit recover`: steps that can be gone back to, and batches that are left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainingkit.core import toml
from trainingkit.core.errors import ConfigError

if TYPE_CHECKING:
    from trainingkit.core.runfolder import RunFolder
    from trainingkit.recovery.journal import Lead, Survey

Span = tuple[int, int]
SHOWN = 6
"""Of many ranges, so many at the beginning and at the end."""
_SPAN = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True)
class Skips:
    """The batches that are left out once the run is set back, as first and last step of each span.

    Args:
        kept: of earlier times, that begin no later than the step.
        asked: now.
        dropped: of earlier times, that begin after the step and are not asked for again.
    """

    kept: tuple[Span, ...]
    asked: tuple[Span, ...]
    dropped: tuple[Span, ...]

    @staticmethod
    def at(step: int, before: Sequence[Span], asked: Sequence[Span]) -> Skips:
        """What becomes of the list `before` when the run is set back to `step`."""
        kept = tuple(span for span in before if span[0] <= step)
        dropped = tuple(span for span in before if span not in kept and span not in asked)
        return Skips(kept, tuple(asked), dropped)


def asked_span(text: str, to_step: int | None) -> Span:
    """The steps of one `--skip-batches A..B`.

    Raises:
        ConfigError: it is anything else, or A is not after the step.
    """
    match = _SPAN.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, -1)
    if match is None or last < first or to_step is None or first <= to_step:
        raise ConfigError(
            "These batches cannot be left out.",
            field="--skip-batches",
            found=text if to_step is not None else f"{text} without --to-step",
            expected="A..B, two steps after that of --to-step, A not after B",
            next_step="For example: --to-step 57 --skip-batches 58..60",
        )
    return first, last


def lead_to(found: Survey, step: int) -> Lead | None:
    """The newest whole snapshot from which a step can be reached; None where there is none."""
    good = (lead for lead in found.leads if lead.found.problem is None)
    return next((lead for lead in good if lead.reaches(step)), None)


def out_of_reach(found: Survey, run: RunFolder, step: int) -> ConfigError:
    """The error of a step that no whole snapshot and journal lead to."""
    newest = found.newest
    if newest is None:
        expected, next_step = "a run with a whole snapshot", way_without_snapshot(found, run)
    else:
        why = newest.covered.why if step > newest.end else None
        expected = f"{in_words(found.reach())}{f' ({why})' if why else ''}"
        next_step = f"Choose one of these. Where they come from: trainingkit recover {shlex.quote(str(run.root))}"
    return ConfigError(
        "No whole snapshot and journal lead to this step.",
        field="--to-step",
        found=step,
        expected=expected,
        next_step=next_step,
    )


def way_without_snapshot(found: Survey, run: RunFolder) -> str:
    """What to do with a run that has no whole snapshot."""
    from trainingkit.trainer.advice import begin_again

    taken = any(not lead.found.unfinished for lead in found.leads)
    return f"{begin_again(run, taken=taken)}{', or restore the folder from a backup' if taken else ''}."


def in_words(ranges: Sequence[Span]) -> str:
    """Ranges of steps, for example "steps 10 to 20, 30"; of many the first and the last."""
    texts = [f"{first} to {last}" if first < last else str(first) for first, last in ranges]
    if len(texts) > 2 * SHOWN + 1:
        texts[SHOWN:-SHOWN] = [f"{len(texts) - 2 * SHOWN} others"]
    alone = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"step {texts[0]} alone" if alone else f"steps {', '.join(texts)}"


def length_of(run: RunFolder) -> int | None:
    """The run's `run.steps`; None where its recipe does not say so, or cannot be read."""
    try:
        section = toml.load(run.recipe).get("run", {})
    except ConfigError:
        return None
    steps = section.get("steps") if isinstance(section, dict) else None
    return steps if isinstance(steps, int) else None


def beyond(span: Span, length: int | None) -> str | None:
    """What to know of a span that goes on after the run's end; None where it does not."""
    first, last = span
    if length is None or last <= length:
        return None
    if first > length:
        return f"All of {first} to {last} lies beyond run.steps = {length}: it counts only if the run is prolonged."
    more = f"{length + 1} to {last}" if length + 1 < last else str(last)
    return (
        f"The run ends at step {length} (run.steps), so it would not have taken the batches of {more} anyway; "
        f"step {first} goes on with those of step {last + 1}."
    )
