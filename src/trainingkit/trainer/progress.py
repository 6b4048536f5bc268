"""What rank 0 shows while it trains: a bar on a terminal, one plain line every few steps elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Protocol

from trainingkit.core.records import EvalRecord
from trainingkit.core.units import format_bytes, format_count, format_seconds


@dataclass(frozen=True)
class Glance:
    """One step as the progress shows it. Loss, stall and bytes are this rank's; tokens/s are all ranks'.

    Args:
        plain_bytes: what plain DDP would send in fp32.
    """

    step: int
    loss: float
    tokens_per_s: float
    stall_share: float
    wire_bytes: int
    plain_bytes: int = 0

    def text(self) -> str:
        """The figures in one line."""
        sent = format_bytes(self.wire_bytes) if self.wire_bytes else "0 B"
        if self.plain_bytes > 1.02 * self.wire_bytes > 0:
            sent += f" (1/{self.plain_bytes / self.wire_bytes:.1f} of fp32)"
        return (
            f"loss {self.loss:.4f}  {format_count(self.tokens_per_s)} tokens/s  "
            f"stall {self.stall_share:.0%}  sent {sent} a step"
        )


class Progress(Protocol):
    """Shows steps, evaluations and messages."""

    def step(self, glance: Glance) -> None:
        """A step ended."""
        ...

    def evaluation(self, record: EvalRecord) -> None:
        """An evaluation ended."""
        ...

    def message(self, text: str) -> None:
        """Something a person should know."""
        ...

    def close(self) -> None:
        """The loop ended."""
        ...


class Silent:
    """Shows nothing (every rank but 0)."""

    def step(self, glance: Glance) -> None:
        """Nothing."""

    def evaluation(self, record: EvalRecord) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """One plain line every `every` steps, for logs and pipes."""

    def __init__(self, total: int | None, *, every: int, start_step: int) -> None:
        self._total = total
        self._every = every
        self._started_s = time.monotonic()
        self._start_step = start_step

    def step(self, glance: Glance) -> None:
        """A line at the first step, every `every` steps, and at the last."""
        first = glance.step == self._start_step + 1
        if not (first or glance.step % self._every == 0 or glance.step == self._total):
            return
        of = f"/{self._total}" if self._total else ""
        self._say(f"step {glance.step}{of}  {glance.text()}  {self._left(glance.step)}")

    def evaluation(self, record: EvalRecord) -> None:
        """One line."""
        self._say(evaluation_text(record))

    def message(self, text: str) -> None:
        """One line."""
        self._say(text)

    def close(self) -> None:
        """Nothing to take down."""

    def _left(self, step: int) -> str:
        done = step - self._start_step
        spent = time.monotonic() - self._started_s
        if not self._total or done < 1:
            return f"{format_seconds(spent)} so far"
        if step >= self._total:
            return f"{format_seconds(spent)} in all"
        return f"about {format_seconds(spent / done * (self._total - step))} left"

    def _say(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


class Bar:
    """A rich progress bar."""

    def __init__(self, total: int | None, *, start_step: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("train", total=total, completed=start_step, figures="starting")
        self._bar.start()

    def step(self, glance: Glance) -> None:
        """Advance to the step."""
        self._bar.update(self._task, completed=glance.step, figures=glance.text())

    def evaluation(self, record: EvalRecord) -> None:
        """A line above the bar."""
        self.message(evaluation_text(record))

    def message(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the finished bar on the screen."""
        self._bar.stop()


def evaluation_text(record: EvalRecord) -> str:
    """'step 40  validation loss 2.4012  bits per byte 3.4641  (256 samples, 1.2 s)'."""
    names = {"loss": "validation loss", "bits_per_byte": "bits per byte", "accuracy": "accuracy"}
    figures = "  ".join(f"{names.get(name, name)} {value:.4f}" for name, value in record.metrics.items())
    return f"step {record.step}  {figures}  ({record.samples} samples, {format_seconds(record.seconds)})"


def make_progress(*, rank: int, total: int | None, every: int, start_step: int) -> Progress:
    """The progress that fits this rank and this output."""
    if rank != 0:
        return Silent()
    if sys.stdout.isatty():
        return Bar(total, start_step=start_step)
    return Lines(total, every=every, start_step=start_step)
