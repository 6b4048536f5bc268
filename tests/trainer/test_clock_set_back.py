"""Records of a machine whose clock was set back count as no time, and no interval fails on what is measured."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.records import EventRecord, Record, StartRecord
from trainingkit.recovery.interval import best_interval_s, between_failures_s
from trainingkit.trainer.failures import seen


def attempt(number: int, begin_s: float, end_s: float) -> list[Record]:
    start = StartRecord(number, begin_s, 0, 2, "h", 1, 1, 0, 100)
    return [start, EventRecord(number, 10, end_s, "snapshot", "x")]


def test_an_attempt_that_ended_before_it_began_counts_as_no_time() -> None:
    records = [*attempt(1, 1000.0, 1600.0), *attempt(2, 2000.0, 2000.0 - 2 * 86400.0)]
    assert seen(records, attempt=3) == (600.0, 2)


@settings(deadline=None, max_examples=60)
@given(
    times=st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=5),
    stated_s=st.floats(1e-6, 1e7),
    cost_s=st.floats(-1e3, 1e3),
)
def test_any_clock_gives_an_interval(times: list[tuple[float, float]], stated_s: float, cost_s: float) -> None:
    records = [record for number, span in enumerate(times, 1) for record in attempt(number, *span)]
    between_s = between_failures_s(stated_s, *seen(records, attempt=len(times) + 1))
    assert between_s > 0.0
    found = best_interval_s(cost_s, between_s)
    assert math.isfinite(found) and found > 0.0
    assert math.isfinite(best_interval_s(cost_s, -between_s))
