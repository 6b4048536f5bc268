"""How a run of several ranks can go wrong, told so that the cause is on the first screen."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Ending:
    """What is known of the ranks of one run.

    Args:
        results: what ranks returned.
        failures: traceback of each rank that raised, earliest cause first; errors about a lost peer come last.
        died: signal that ended the process of a rank.
        exited: exit code of a rank whose process ended by itself.
        stuck: stack of every thread of a rank that had to be ended.
        stopped: ranks that were found stopped (SIGSTOP).
        output: last lines that each rank wrote to stdout and stderr.
    """

    results: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    died: dict[int, signal.Signals] = field(default_factory=dict)
    exited: dict[int, int] = field(default_factory=dict)
    stuck: dict[int, str] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)
    output: dict[int, str] = field(default_factory=dict)


class RankTestError(AssertionError):
    """Base: a multi-process run did not end with a result from each rank."""

    def __init__(self, headline: str, ending: Ending) -> None:
        self.ending = ending
        self.results = ending.results
        self.died = ending.died
        self.stuck = ending.stuck
        super().__init__(headline)


class RankFailed(RankTestError):
    """A rank raised or died. The first one is shown, not its peers' connection errors.

    Attributes:
        rank: the rank that failed first.
        traceback: its traceback; empty when its process died.
        failures: all tracebacks by rank.
        died: {rank: signal} of processes that were killed.
        exited: {rank: exit code} of processes that ended by themselves.
        results: {rank: value} of ranks that returned.
        stuck: {rank: stacks} of ranks that did not come back within the grace.
    """

    def __init__(self, function: str, rank: int, ending: Ending) -> None:
        self.rank = rank
        self.failures = ending.failures
        self.exited = ending.exited
        self.traceback = ending.failures.get(rank, "")
        super().__init__("\n".join(self._lines(function, rank, ending)), ending)

    @staticmethod
    def _lines(function: str, rank: int, ending: Ending) -> list[str]:
        if rank in ending.failures:
            lines = [f"rank {rank} failed first in {function}:", ending.failures[rank].rstrip()]
        elif rank in ending.died:
            lines = [f"rank {rank} was ended by {ending.died[rank].name} in {function}"]
        else:
            lines = [f"rank {rank} left with exit code {ending.exited[rank]} in {function}"]
        others = sorted((set(ending.failures) | set(ending.died) | set(ending.exited)) - {rank})
        if others:
            lines.append(f"after that, ranks {others} failed too")
        return (
            lines + _sections("did not come back, and had to be ended", ending.stuck) + _sections("said", ending.output)
        )


class DeadlineExpired(RankTestError):
    """Not all ranks came back in time; the stacks of those that did not are shown.

    Attributes:
        stuck: {rank: stacks}.
        stopped: ranks found stopped by SIGSTOP.
    """

    def __init__(self, function: str, deadline_s: float, ending: Ending) -> None:
        self.stopped = ending.stopped
        lines = [f"{function}: ranks {sorted(ending.stuck)} did not come back within {deadline_s:g} s"]
        if ending.stopped:
            lines.append(f"ranks {ending.stopped} were stopped (SIGSTOP)")
        lines += _sections("was here", ending.stuck) + _sections("said", ending.output)
        super().__init__("\n".join(lines), ending)


def _sections(title: str, texts: Mapping[int, str]) -> list[str]:
    return [f"--- rank {rank} {title}:\n{text.rstrip()}" for rank, text in sorted(texts.items()) if text.strip()]
