"""Which steps a journal covers: every loss that its copies make good, and every one that they do not."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from journal_files import BASE, BUCKETS, RANKS, message, scans, write

from trainingkit.core.errors import CheckpointError
from trainingkit.recovery.journal import Base, Cover, check_reaches, cover, frames, row_name, slots
from trainingkit.recovery.journal.cover import LAG_STEPS


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    for rank in range(RANKS):
        write(tmp_path, rank, range(11, 31))
    return tmp_path


def covered(journal: Path, base: Base = BASE) -> Cover:
    return cover(base, scans(journal))


def path_of(journal: Path, rank: int) -> Path:
    return next(slot.path for slot in slots(journal) if slot.rank == rank)


def end_of(journal: Path, rank: int, step: int) -> int:
    """Where a step's record begins in a rank's file."""
    found = next(each for each in scans(journal) if each.slot.rank == rank)
    entry = next(each for each in found.entries if each.step == step)
    whole = found.slot.path.read_bytes()
    return whole.rindex(b"TKJR", 0, min(start for start, _ in entry.blobs.values()))


def all_messages(found: Cover) -> bool:
    return all(
        step.blob(row_name(bucket, row)) == message(step.step, bucket, row)
        for step in found.steps
        for bucket in range(BUCKETS)
        for row in range(RANKS)
    )


def test_everything_there_is_covered(journal: Path) -> None:
    found = covered(journal)
    assert (found.end, found.why, found.lost, found.attempt) == (30, None, (), 1)
    assert all_messages(found)
    assert found.steps[-1].own == {rank: {"at": 30} for rank in range(RANKS)}


@pytest.mark.parametrize("rank", range(RANKS))
def test_any_one_rank_may_lose_its_files(journal: Path, rank: int) -> None:
    shutil.rmtree(journal / f"rank-{rank}")
    found = covered(journal)
    assert (found.end, found.lost) == (30, (rank,))
    assert all_messages(found)


def test_two_ranks_may_not(journal: Path) -> None:
    for rank in (0, 1):
        shutil.rmtree(journal / f"rank-{rank}")
    found = covered(journal)
    assert found.steps == () and found.why == "the message of rank 0 for step 11 is in no file"


@pytest.mark.parametrize("behind", [1, 3])
def test_a_rank_that_was_killed_a_little_earlier_ends_all(journal: Path, behind: int) -> None:
    path, cut = path_of(journal, 1), end_of(journal, 1, 31 - behind)
    path.write_bytes(path.read_bytes()[: cut + 20])
    found = covered(journal)
    more = f"other ranks' files hold {behind} step{'s' if behind > 1 else ''} more"
    assert (found.end, found.lost, found.why) == (30 - behind, (), f"rank 1's records end there; {more}")


@pytest.mark.parametrize(("behind", "end", "lost"), [(LAG_STEPS, 95, ()), (LAG_STEPS + 1, 95, (1,))])
def test_a_file_that_ends_far_earlier_counts_as_lost(tmp_path: Path, behind: int, end: int, lost: Any) -> None:
    """As far as a writer's queue goes the rank was killed earlier; nothing but a loss explains more."""
    for rank in range(RANKS):
        write(tmp_path, rank, range(11, 96 + (0 if lost else behind)))
    path, cut = path_of(tmp_path, 1), end_of(tmp_path, 1, 96 - behind if lost else 96)
    path.write_bytes(path.read_bytes()[: cut + 20])
    found = covered(tmp_path)
    assert (found.end, found.lost) == (end, lost) and all_messages(found)


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    """Steps 11 to 30 in two segments, the second from 21 on."""
    for rank in range(RANKS):
        write(tmp_path, rank, range(11, 21))
        write(tmp_path, rank, range(21, 31), base_step=20)
    return tmp_path


def spoil(path: Path, how: str) -> None:
    """Gone, empty, cut in its opening, or a byte of the opening flipped."""
    whole = path.read_bytes()
    left = {"empty": b"", "cut": whole[:30], "flipped": whole[:30] + b"?" + whole[31:]}
    path.unlink()
    if how in left:
        path.write_bytes(left[how])


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "flipped"])
@pytest.mark.parametrize("base", [10, 20])
@pytest.mark.parametrize("rank", range(RANKS))
def test_any_rank_may_lose_its_newest_segment_alone(rotated: Path, rank: int, base: int, how: str) -> None:
    """With older ones left it does not count as killed earlier: another's records say that it had begun."""
    spoil([slot.path for slot in slots(rotated) if slot.rank == rank][-1], how)
    found = covered(rotated, Base("r", 1, base, RANKS))
    assert (found.end, found.lost, found.why) == (30, (rank,), None) and all_messages(found)
    assert len(found.steps) == 30 - base


@pytest.mark.parametrize("how", ["gone", "cut", "flipped"])
def test_an_older_segment_that_is_lost_costs_nothing(rotated: Path, how: str) -> None:
    spoil(path_of(rotated, 1), how)
    found = covered(rotated)
    assert (found.end, found.lost, found.why) == (30, (), None) and all_messages(found)


@pytest.mark.parametrize("at", [20, 21, 28])
def test_a_rank_killed_after_the_last_begin_ends_all(rotated: Path, at: int) -> None:
    """Its newest segment is there, so nothing is lost, even if no step came into it."""
    path = [slot.path for slot in slots(rotated) if slot.rank == 1][-1]
    starts = next(each.entries for each in scans(rotated) if each.slot.path == path)
    end = next((entry.end for entry in starts if entry.step == at), None)
    path.write_bytes(path.read_bytes()[: end if end is not None else starts[0].end - 1])
    found = covered(rotated)
    assert (found.end, found.lost) == (at, ()) and found.why is not None
    assert found.why.startswith("rank 1's records end there; other ranks' files hold ")


def test_what_was_before_a_segment_that_has_begun_was_written(rotated: Path) -> None:
    """No rank came to step 21; rank 1's older file is shorter all the same, so it has lost what the others hold."""
    for slot in slots(rotated):
        if slot.first_step == 21:
            whole = slot.path.read_bytes()
            slot.path.write_bytes(whole[: whole.index(b"TKJR", 12)])
    path, cut = path_of(rotated, 1), end_of(rotated, 1, 18)
    path.write_bytes(path.read_bytes()[:cut])
    found = covered(rotated)
    assert (found.end, found.lost) == (20, (1,)) and all_messages(found)


def test_two_ranks_that_lose_their_newest_segment_end_where_a_message_is_missing(rotated: Path) -> None:
    for slot in slots(rotated):
        if slot.first_step == 21 and slot.rank < 2:
            spoil(slot.path, "flipped")
    found = covered(rotated)
    assert found.end == 20 and found.why is not None
    assert found.why.startswith("the message of rank 0 for step 21 is in no file; rank 0's seg-00000021.a1.tkj is")


def test_a_rank_whose_disk_was_full_has_lost_what_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process went on, so the others' records count: its file must not look as after a kill."""
    for rank in (0, 2):
        write(tmp_path, rank, range(11, 31))
    resting = frames.write

    def full(handle: Any, parts: Any) -> int:
        if len(scans(tmp_path)[1].entries) < 14:
            return resting(handle, parts)
        handle.write(parts[0][:40])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(frames, "write", full)
    with pytest.raises(AssertionError):  # `write` expects no problem
        write(tmp_path, 1, range(11, 31))
    found = covered(tmp_path)
    assert (found.end, found.lost, found.why) == (30, (1,), None) and all_messages(found)
    assert found.steps[13].entries.keys() == {0, 1, 2}, "what was whole counts"


@pytest.mark.parametrize("step", [27, 30])
def test_a_file_that_ends_with_damage_is_not_waited_for(journal: Path, step: int) -> None:
    path, at = path_of(journal, 1), end_of(journal, 1, step)
    whole = path.read_bytes()
    path.write_bytes(whole[: at + 30] + b"?" + whole[at + 31 :])
    found = covered(journal)
    assert (found.end, found.lost) == (30, (1,)) and all_messages(found)


def test_an_attempt_goes_on_where_a_replay_of_another_ended(journal: Path) -> None:
    """The first to 30, the second from 25 to 40, the third from 33 on; the newest that did anything counts."""
    for rank in range(RANKS):
        write(journal, rank, range(26, 41), attempt=2, base_step=25)
        write(journal, rank, range(34, 37), attempt=3, base_step=33, base_attempt=2)
        write(journal, rank, (), attempt=4, base_step=36, base_attempt=3)
    found = covered(journal)
    assert (found.end, found.attempt, found.why) == (36, 3, None) and all_messages(found)
    assert [step.step for step in found.steps] == list(range(11, 37))
    assert [step.attempt for step in found.steps] == [1] * 15 + [2] * 8 + [3] * 3
    later = covered(journal, Base("r", 2, 30, RANKS))
    assert (later.end, len(later.steps)) == (36, 6)
    assert check_reaches(found, BASE, 25).attempt == 1 and check_reaches(found, BASE, 26).attempt == 2
    assert covered(journal, Base("r", 1, 27, RANKS)).end == 30, "the second left the first before"


def test_what_an_attempt_goes_on_from_must_be_there(journal: Path) -> None:
    for rank in range(RANKS):
        write(journal, rank, range(26, 41), attempt=2, base_step=25)
    for rank in (0, 1):
        path, cut = path_of(journal, rank), end_of(journal, rank, 20)
        path.write_bytes(path.read_bytes()[:cut])
    found = covered(journal)
    assert (found.end, found.attempt) == (19, 1) and all_messages(found)


def test_damage_in_two_files_ends_where_a_message_is_missing(journal: Path) -> None:
    for rank, step in ((1, 20), (2, 17)):
        path, cut = path_of(journal, rank), end_of(journal, rank, step)
        whole = path.read_bytes()
        path.write_bytes(whole[: cut + 30] + b"?" + whole[cut + 31 :])
    found = covered(journal)
    assert found.end == 19 and all_messages(found)
    assert found.why is not None and found.why.startswith(
        "the message of rank 1 for step 20 is in no file; rank 1's seg"
    )


def test_another_run_world_or_attempt_is_not_taken(journal: Path) -> None:
    for other in (Base("x", 1, 10, RANKS), Base("r", 1, 10, 2), Base("r", 2, 10, RANKS)):
        assert covered(journal, other).steps == ()
    assert covered(journal, Base("r", 1, 30, RANKS)).steps == ()
    assert len(covered(journal, Base("r", 1, 25, RANKS)).steps) == 5


def test_the_newest_attempt_that_goes_on_from_the_snapshot_counts(journal: Path) -> None:
    for rank in range(RANKS):
        write(journal, rank, range(11, 14), attempt=2)
        write(journal, rank, range(16, 40), attempt=3, base_step=15, base_attempt=3)
    assert (covered(journal).end, covered(journal).attempt) == (13, 2)
    assert covered(journal, Base("r", 3, 15, RANKS)).end == 39
    for slot in slots(journal):
        if slot.attempt == 2:
            slot.path.write_bytes(slot.path.read_bytes()[:200])
    assert (covered(journal).end, covered(journal).attempt) == (30, 1)


def test_ranks_that_disagree_about_a_step_end_the_cover(journal: Path) -> None:
    """A rank that has another norm for step 20."""
    shutil.rmtree(journal / "rank-2")
    write(journal, 2, range(11, 31), numbers={20: {"norm": (2.0).hex()}})
    found = covered(journal)
    assert (found.end, found.why) == (19, "rank 2 says something else of step 20 than rank 0")


def test_a_cover_is_cut_at_a_step(journal: Path) -> None:
    found = check_reaches(covered(journal), BASE, 20)
    assert (found.end, found.attempt, found.why) == (20, 1, None)


@pytest.mark.parametrize("step", [9, 31])
def test_a_step_that_is_not_covered_is_refused_with_the_reach(journal: Path, step: int) -> None:
    with pytest.raises(CheckpointError) as told:
        check_reaches(covered(journal), BASE, step)
    assert str(told.value) == (
        "No whole snapshot and journal lead to this step.\n"
        "  field:     --to-step\n"
        f"  found:     {step}\n"
        "  expected:  steps 10 to 30, after the snapshot of step 10\n"
        "  next step: List what is covered with: trainingkit recover RUN --inspect"
    )
