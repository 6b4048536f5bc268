"""A journal's files: what was written comes back, and what is not whole is never taken for it."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_files import BUCKETS, RANKS, head_of, message, origin, rows_of, scans, write

from trainingkit.recovery.journal import JournalWriter, Scan, differing, frames, patched, row_name, slots
from trainingkit.recovery.journal.outdated import unneeded
from trainingkit.recovery.journal.segments import segment_path
from trainingkit.recovery.journal.writer import QUEUE_STEPS

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
NAMES = st.text("abc$", max_size=2)
STATES = st.dictionaries(NAMES, st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v)))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write(tmp_path, 0, range(11, 16))
    return tmp_path


def test_what_was_written_comes_back(journal: Path) -> None:
    found = scans(journal)[0]
    assert found.problem is None and found.origin == origin(0)
    assert [entry.step for entry in found.entries] == [11, 12, 13, 14, 15]
    for entry in found.entries:
        assert {name: entry.blob(name) for name in entry.blobs} == rows_of(entry.step, 0)
        assert entry.head == head_of(entry.step, first=entry.step == 11)
    assert found.entries[2].blob(row_name(1, 2)) == message(13, 1, 2)
    assert len(found.entries[0].blobs) == 2 * BUCKETS and RANKS == 3


def test_a_file_cut_anywhere_ends_at_its_last_whole_record(journal: Path) -> None:
    path = slots(journal)[0].path
    whole = path.read_bytes()
    starts = [at for at in range(len(whole)) if whole.startswith(b"TKJR", at)] + [len(whole)]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = scans(journal)[0]
        expected = max(0, sum(start <= size for start in starts) - 2)
        assert [entry.step for entry in found.entries] == list(range(11, 11 + expected))
        at_border = size in starts[1:]
        assert (found.problem is None) == at_border
        assert found.cut or at_border


def test_a_flipped_bit_is_seen_wherever_it_is(journal: Path) -> None:
    path = slots(journal)[0].path
    whole = path.read_bytes()
    starts = [at for at in range(len(whole)) if whole.startswith(b"TKJR", at)] + [len(whole)]
    draw = random.Random(0)
    for _ in range(300):
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        found = scans(journal)[0]
        before = max(0, sum(start <= at for start in starts[:-1]) - 2)
        assert found.problem is not None
        assert [entry.step for entry in found.entries] == list(range(11, 11 + before))


def test_a_record_out_of_order_and_a_file_in_anothers_place_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, [11, 13])
    found = scans(tmp_path)[0]
    assert len(found.entries) == 1 and found.problem is not None
    assert "found step 13, expected 12" in found.problem and not found.cut
    wrong = tmp_path / "rank-1" / slots(tmp_path)[0].path.name
    wrong.parent.mkdir()
    slots(tmp_path)[0].path.rename(wrong)
    moved = scans(tmp_path)[0]
    assert moved.entries == () and moved.origin is None
    assert moved.problem is not None and "rank 0's from step 11 on, attempt 1, in the place of another" in moved.problem


def test_segments_that_no_snapshot_leads_into_are_removed(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, fsync_s=0.0, queue_bytes=1)
    for base in (10, 20, 30):
        writer.begin(origin(0, base_step=base), oldest_step=base - 10)
        writer.append(base + 1, head_of(base + 1, first=True), rows_of(base + 1, 0))
    writer.close()
    assert [slot.first_step for slot in slots(tmp_path)] == [21, 31]
    later = origin(0, base_step=31, base_attempt=1, attempt=2)
    segment_path(tmp_path, later).write_bytes(b"")
    assert unneeded(tmp_path, later, oldest_step=20) == []
    assert [slot.first_step for slot in unneeded(tmp_path, later, oldest_step=31)] == [21]
    assert [slot.first_step for slot in unneeded(tmp_path, later, oldest_step=32)] == [21, 31]


def test_segments_of_ranks_that_are_no_more_are_removed(tmp_path: Path) -> None:
    """Ranks 0 to 4 wrote; three go on, and ranks 0 and 1 look after those of 3 and 4."""
    for rank in range(5):
        write(tmp_path, rank, range(11, 13), world_size=5)
    for rank in range(RANKS):
        write(tmp_path, rank, range(21, 23), base_step=20, base_attempt=1, attempt=2)
    first, second, third = (origin(r, base_step=30, attempt=2, base_attempt=2) for r in range(RANKS))
    ranks = [[slot.rank for slot in unneeded(tmp_path, each, oldest_step=21)] for each in (first, second, third)]
    assert ranks == [[0, 3], [1, 4], [2]]
    assert unneeded(tmp_path, first, oldest_step=20) == [], "as long as a snapshot leads into them"


def test_a_segment_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path, 0, [11, 12])
    before = slots(tmp_path)[0].path.read_bytes()
    writer = JournalWriter(tmp_path, fsync_s=0.0, queue_bytes=1 << 20)
    writer.begin(origin(0), oldest_step=0)
    writer.close()
    (text,) = writer.problems()
    assert text.startswith("The journal could not be begun after step 10: File exists.")
    assert slots(tmp_path)[0].path.read_bytes() == before


def hold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """From now on the disk takes nothing, until the event is set."""
    taken, resting = threading.Event(), frames.write
    monkeypatch.setattr(frames, "write", lambda handle, parts: taken.wait() and resting(handle, parts))
    return taken


@pytest.mark.parametrize("base", [10, 12], ids=["first", "next"])
def test_a_segment_is_there_when_its_beginning_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int
) -> None:
    """With all that was appended before: else a kill could leave what looks like a loss."""
    writer = JournalWriter(tmp_path, fsync_s=60.0, queue_bytes=1 << 20)
    if base > 10:
        writer.begin(origin(0), oldest_step=0)
    taken = hold(monkeypatch)
    for step in range(11, base + 1):
        writer.append(step, head_of(step, first=step == 11), {})
    seen: list[Scan] = []

    def begin() -> None:
        writer.begin(origin(0, base_step=base), oldest_step=0)
        seen.extend(scans(tmp_path))

    beginning = threading.Thread(target=begin)
    beginning.start()
    beginning.join(0.2)
    assert beginning.is_alive(), "the disk has not taken it"
    taken.set()
    beginning.join(10.0)
    writer.close()
    assert seen[-1].origin == origin(0, base_step=base)
    assert [entry.step for found in seen for entry in found.entries] == list(range(11, base + 1))
    assert writer.waited_s > 0.1


def test_a_living_writer_is_not_further_behind_than_its_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes nothing: the step after the last that fits waits until it does."""
    writer = JournalWriter(tmp_path, fsync_s=60.0, queue_bytes=1 << 20)
    writer.begin(origin(0), oldest_step=0)
    taken = hold(monkeypatch)
    for step in range(11, 11 + QUEUE_STEPS):
        writer.append(step, head_of(step, first=step == 11), {})
    step = 11 + QUEUE_STEPS
    more = threading.Thread(target=writer.append, args=(step, head_of(step, first=False), {}))
    more.start()
    more.join(0.2)
    assert more.is_alive()
    taken.set()
    more.join(10.0)
    writer.close()
    assert len(scans(tmp_path)[0].entries) == QUEUE_STEPS + 1


def test_a_failure_ends_the_segment_is_said_and_the_next_one_is_written(tmp_path: Path) -> None:
    blocked = tmp_path / "rank-0"
    blocked.write_bytes(b"no folder")
    writer = JournalWriter(tmp_path, fsync_s=0.0, queue_bytes=1 << 20)
    writer.begin(origin(0), oldest_step=0)
    writer.append(11, head_of(11, first=True), rows_of(11, 0))
    writer.close()
    (text,) = writer.problems()
    assert text.startswith("The journal could not be begun after step 10: ") and "until the next snapshot" in text
    assert writer.problems() == []
    blocked.unlink()
    write(tmp_path, 0, [21], base_step=20)
    assert [len(found.entries) for found in scans(tmp_path)] == [1]


def test_a_full_queue_waits_and_loses_nothing(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, fsync_s=60.0, queue_bytes=1)
    writer.begin(origin(0), oldest_step=0)
    big = {"row/0/0": bytes(1 << 20)}
    sizes = [writer.append(step, head_of(step, first=step == 11), big) for step in range(11, 31)]
    writer.close()
    (found,) = scans(tmp_path)
    assert found.problem is None and len(found.entries) == 20
    assert 0 <= found.size - sum(sizes) < 1000
    assert writer.written_bytes == found.size and writer.waited_s > 0


@given(before=STATES, now=STATES)
@settings(deadline=None, max_examples=200)
def test_differences_add_up_to_the_state(before: dict[str, Any], now: dict[str, Any]) -> None:
    now = {**before, **now}
    assert patched(before, differing(before, now)) == now
    assert differing(now, now) == {}
