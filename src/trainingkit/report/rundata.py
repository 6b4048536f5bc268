"""Everything a page needs of a run folder, read once; whatever cannot be read becomes a warning, not an error."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from trainingkit.core import decisions, outcome
from trainingkit.core.outcome import Outcome
from trainingkit.core.records import EvalRecord, EventRecord, Record, StartRecord, StepRecord, read_records
from trainingkit.core.runfolder import RunFolder

_RANK_FILE = re.compile(r"rank-(\d+)\.jsonl")


@dataclass(frozen=True)
class RankData:
    """One rank's steps: in order, each once; steps that a resume went back behind are left out."""

    rank: int
    host: str
    steps: tuple[StepRecord, ...]


@dataclass(frozen=True)
class RunData:
    """A run as the page sees it.

    Args:
        recipe: text of recipe.toml; None when there is none.
        starts: one per attempt and rank, ordered by both.
        repeated_steps: steps that were taken, then taken again by a later attempt (their first results are not shown).
        running: True when one of its processes lives on this machine, False when none does, None when we cannot know.
        warnings: sentences about what is missing or could not be read.
    """

    name: str
    recipe: str | None
    starts: tuple[StartRecord, ...]
    ranks: tuple[RankData, ...]
    evals: tuple[EvalRecord, ...]
    events: tuple[EventRecord, ...]
    decisions: tuple[dict[str, Any], ...]
    outcomes: dict[int, Outcome]
    repeated_steps: int
    running: bool | None
    warnings: tuple[str, ...]

    @property
    def last_start(self) -> StartRecord | None:
        """The latest attempt's start as its lowest rank told it."""
        last = [s for s in self.starts if s.attempt == self.starts[-1].attempt]
        return last[0] if last else None

    @property
    def attempts(self) -> int:
        """How many attempts left a record, at least 1."""
        records = [*self.starts, *self.events, *(r.steps[-1] for r in self.ranks if r.steps)]
        return max(1, len({record.attempt for record in records}))


def read_run(run: RunFolder) -> RunData:
    """Read a run folder, whole or not. Nothing in it is required."""
    by_rank, warnings = _read_metrics(run)
    records = [record for rows in by_rank.values() for record in rows]
    starts = sorted(_only(StartRecord, records), key=lambda s: (s.attempt, s.rank))
    firsts = _first_steps(records)
    outcomes = outcome.read(run)
    ranks = tuple(_rank_data(rank, rows, firsts, outcomes) for rank, rows in sorted(by_rank.items()))
    recipe = _read_recipe(run, warnings)
    choices = _read_decisions(run, warnings)
    warnings += _missing_ranks(starts, by_rank)
    return RunData(
        name=run.root.name,
        recipe=recipe,
        starts=tuple(starts),
        ranks=ranks,
        evals=_latest_evals(_only(EvalRecord, records), firsts),
        events=_distinct_events(_only(EventRecord, records)),
        decisions=choices,
        outcomes=outcomes,
        repeated_steps=_repeated(by_rank, ranks),
        running=_running(starts),
        warnings=tuple(warnings),
    )


def _read_metrics(run: RunFolder) -> tuple[dict[int, list[Record]], list[str]]:
    by_rank: dict[int, list[Record]] = {}
    warnings: list[str] = []
    for path in run.metrics_folder.glob("rank-*.jsonl"):
        match = _RANK_FILE.fullmatch(path.name)
        if match is None:
            continue
        records, bad = read_records(path)
        sound = [record for record in records if _is_sound(record)]
        bad += len(records) - len(sound)
        if bad:
            lines = "1 line" if bad == 1 else f"{bad} lines"
            warnings.append(
                f"metrics/{path.name}: {lines} could not be read and {'is' if bad == 1 else 'are'} left out."
            )
        by_rank[int(match[1])] = sound
    if not by_rank:
        warnings.append("There are no metrics: no rank wrote a record.")
    return by_rank, warnings


def _is_sound(record: Record) -> bool:
    """A line can be valid JSON and still carry the wrong kind of value, for example after a disk fault."""
    numbers: list[Any] = [record.attempt, record.time_s]
    if isinstance(record, StepRecord):
        tables = [record.phases, record.hidden]
        numbers += [record.step, record.tokens, record.wire_bytes, record.step_s]
        numbers += [v for table in tables if isinstance(table, dict) for v in table.values()]
    elif isinstance(record, EvalRecord):
        tables = [record.metrics]
        numbers += [record.step, record.seconds]
    elif isinstance(record, EventRecord):
        tables = [record.detail]
        numbers += [record.step]
    else:
        tables = [record.model, record.data, record.machine, record.versions, record.sync]
        numbers += [record.rank, record.world_size]
    return all(isinstance(t, dict) for t in tables) and all(
        isinstance(n, (int, float)) and math.isfinite(n) for n in numbers
    )


def _only(kind: type[Any], records: Iterable[Record]) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


def _first_steps(records: Iterable[Record]) -> dict[int, int]:
    """The first step that each attempt took, on any rank."""
    firsts: dict[int, int] = {}
    for record in records:
        if isinstance(record, StepRecord):
            firsts[record.attempt] = min(record.step, firsts.get(record.attempt, record.step))
    return firsts


def _stands(record: StepRecord | EvalRecord, firsts: dict[int, int]) -> bool:
    """False when a later attempt started before this record's step, so that the model has forgotten it."""
    return all(record.step < first for attempt, first in firsts.items() if attempt > record.attempt)


def _rank_data(rank: int, records: list[Record], firsts: dict[int, int], outcomes: dict[int, Outcome]) -> RankData:
    starts = _only(StartRecord, records)
    host = starts[-1].host if starts else outcomes[rank].host if rank in outcomes else ""
    steps = {record.step: record for record in _only(StepRecord, records) if _stands(record, firsts)}
    return RankData(rank, str(host), tuple(steps[step] for step in sorted(steps)))


def _latest_evals(evals: list[EvalRecord], firsts: dict[int, int]) -> tuple[EvalRecord, ...]:
    standing = {e.step: e for e in sorted(evals, key=lambda e: e.attempt) if _stands(e, firsts)}
    return tuple(standing[step] for step in sorted(standing))


def _distinct_events(events: list[EventRecord]) -> tuple[EventRecord, ...]:
    """Events that several ranks saw alike are one event; the earliest time is kept."""
    distinct: dict[tuple[int, int, str, str], EventRecord] = {}
    for event in sorted(events, key=lambda e: e.time_s):
        distinct.setdefault((event.attempt, event.step, str(event.event), str(event.text)), event)
    return tuple(distinct.values())


def _repeated(by_rank: dict[int, list[Record]], ranks: Sequence[RankData]) -> int:
    return max((len(_only(StepRecord, by_rank[r.rank])) - len(r.steps) for r in ranks), default=0)


def _read_recipe(run: RunFolder, warnings: list[str]) -> str | None:
    try:
        return run.recipe.read_text(encoding="utf-8", errors="replace")
    except OSError:
        warnings.append("recipe.toml is missing: what was asked for is not known.")
        return None


def _read_decisions(run: RunFolder, warnings: list[str]) -> tuple[dict[str, Any], ...]:
    if not run.decisions.exists():
        return ()
    rows = [row for row in decisions.read(run.decisions) if isinstance(row, dict)]
    lines = run.decisions.read_text(encoding="utf-8", errors="replace").splitlines()
    bad = sum(1 for line in lines if line.strip()) - len(rows)
    if bad > 0:
        warnings.append(f"decisions.jsonl: {bad} line(s) could not be read and are left out.")
    return tuple(rows)


def _missing_ranks(starts: Sequence[StartRecord], by_rank: dict[int, list[Record]]) -> list[str]:
    if not starts:
        return ["No rank wrote how it started: model, data and machine are not known."] if by_rank else []
    missing = [str(rank) for rank in range(int(starts[-1].world_size)) if not by_rank.get(rank)]
    if not missing:
        return []
    return [f"No records of rank {', '.join(missing)}: the figures are of the other ranks only."]


def _running(starts: Sequence[StartRecord]) -> bool | None:
    """Whether a process of the latest attempt still lives, as far as this machine can tell."""
    if not starts:
        return None
    last = [s for s in starts if s.attempt == starts[-1].attempt]
    here = [s for s in last if s.host == socket.gethostname()]
    if any(_is_alive(s) for s in here):
        return True
    return False if len(here) == len(last) else None


def _is_alive(start: StartRecord) -> bool:
    """A process with that number, and not a younger one that got the number later."""
    if start.pid == os.getpid():
        return True
    try:
        return psutil.Process(start.pid).create_time() <= start.time_s + 1.0
    except (psutil.Error, TypeError, ValueError, OverflowError):
        return False
