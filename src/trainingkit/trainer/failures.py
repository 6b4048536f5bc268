"""How often a run has failed so far, by its own records."""

from __future__ import annotations

from collections.abc import Iterable

from trainingkit.core.records import EventRecord, Record, StartRecord

ASKED = ("preempted", "early_stop")


def seen(records: Iterable[Record], *, attempt: int) -> tuple[float, int]:
    """Seconds that attempts before `attempt` trained, and how many of them ended without having been asked to.

    One that did all its steps, or was stopped, is no failure. One whose records end before they begin, because the
    clock was set back, counts as no time.
    """
    begun: list[StartRecord] = []
    ended_s: dict[int, float] = {}
    asked: set[int] = set()
    done: dict[int, int] = {}
    for record in records:
        if isinstance(record, StartRecord):
            begun.append(record)
            ended_s[record.attempt] = record.time_s
        else:
            ended_s[record.attempt] = record.time_s
            done[record.attempt] = record.step
            if isinstance(record, EventRecord) and record.event in ASKED:
                asked.add(record.attempt)
    earlier = [start for start in begun if start.attempt < attempt]
    trained_s = sum(max(0.0, ended_s[start.attempt] - start.time_s) for start in earlier)
    failures = sum(
        1
        for start in earlier
        if start.attempt not in asked and done.get(start.attempt, 0) < (start.total_steps or float("inf"))
    )
    return trained_s, failures
