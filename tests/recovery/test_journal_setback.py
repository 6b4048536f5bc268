"""Going back to a step: what is newer is put aside, whole, and what leads to the step stays."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
import torch
from journal_files import RANKS, write

from trainingkit.core.errors import CheckpointError
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import Snapshots, find
from trainingkit.recovery.journal import MARK, set_back, slots, survey
from trainingkit.recovery.memory import folder_of_run, former_folders
from trainingkit.recovery.rescue import rescue


def snapshot(run: RunFolder, step: int, attempt: int) -> None:
    """A whole one that says it is of three ranks of run "r", though one process made it."""
    with Snapshots(run.snapshots, keep=9) as snapshots:
        snapshots.save(step, {"model/a": torch.zeros(2)}, {MARK: {"run": "r", "attempt": attempt}}, wait=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Snapshots of steps 10 and 20, one of 30 by a second attempt; the journal from 11 to 35."""
    run = RunFolder(tmp_path / "run")
    run.create()
    for step, attempt in ((10, 1), (20, 1), (30, 2)):
        snapshot(run, step, attempt)
    for rank in range(RANKS):
        write(run.journal, rank, range(11, 21), world_size=1)
        write(run.journal, rank, range(21, 29), world_size=1, base_step=20)
        write(run.journal, rank, range(31, 36), world_size=1, attempt=2, base_step=30, base_attempt=2)
    return run


def alone(run: RunFolder) -> None:
    """The snapshots here are one process's, so its journal is rank 0's alone."""
    for slot in slots(run.journal):
        if slot.rank:
            slot.path.unlink()


def test_the_survey_says_what_is_covered(run: RunFolder) -> None:
    alone(run)
    found = survey(run)
    assert [(lead.found.step, lead.end) for lead in found.leads] == [(30, 35), (20, 28), (10, 28)]
    assert found.reach() == [(10, 28), (30, 35)]
    assert found.newest is not None and found.newest.end == 35


@pytest.mark.parametrize(("step", "base"), [(33, 30), (25, 20), (20, 20), (14, 10), (30, 30)])
def test_a_run_that_is_set_back_ends_at_that_step(run: RunFolder, step: int, base: int) -> None:
    alone(run)
    before = {str(slot.path.relative_to(run.journal)): slot.path.read_bytes() for slot in slots(run.journal)}
    done = set_back(run, step)
    assert (done.snapshot_step, done.replayed) == (base, step - base)
    newest = survey(run).newest
    assert newest is not None and (newest.found.step, newest.end) == (base, step)
    assert done.aside is not None
    left = {str(slot.path.relative_to(run.journal)): slot.path.read_bytes() for slot in slots(run.journal)}
    kept = {str(s.path.relative_to(done.aside / "journal")): s.path.read_bytes() for s in slots(done.aside / "journal")}
    assert {**left, **kept} == before
    assert sorted(f.step for f in find(run.snapshots)) == [s for s in (10, 20, 30) if s <= base]
    moved = find(done.aside / "snapshots") if (done.aside / "snapshots").exists() else []
    assert [f.problem for f in moved] == [None] * sum(s > base for s in (10, 20, 30))
    again = set_back(run, step)
    assert (again.aside, again.moved) == (None, ())


@pytest.mark.parametrize(("step", "attempt"), [(33, 2), (38, 3)])
def test_a_run_is_set_back_to_a_step_of_an_attempt_in_between(run: RunFolder, step: int, attempt: int) -> None:
    """The third attempt replayed the second's steps to 34, and went on to 40; the segments of its way are cut, too."""
    alone(run)
    write(run.journal, 0, range(35, 41), world_size=1, attempt=3, base_step=34, base_attempt=2)
    assert survey(run).reach() == [(10, 28), (30, 40)]
    done = set_back(run, step)
    newest = survey(run).newest
    assert newest is not None and (newest.end, newest.covered.attempt, done.snapshot_step) == (step, attempt, 30)


def test_the_hosts_memory_does_not_bring_back_what_was_left(run: RunFolder) -> None:
    alone(run)
    with Snapshots(run.snapshots, keep=9) as snapshots:
        memory = folder_of_run(run.snapshots)
        state = {MARK: {"run": "r", "attempt": 2}}
        snapshots.save(40, {"model/a": torch.zeros(2)}, state, memory=memory, wait=True)
        assert survey(run).in_memory == (40,)
        done = set_back(run, 33)
        assert "memory/step-00000040" in done.moved and done.aside is not None
        assert (done.aside / "memory" / "rank-0" / "step-00000040" / "manifest.json").is_file()
        assert not memory.exists() and former_folders(run.snapshots) == [memory]
        memory.mkdir()  # what another host still has
        now = folder_of_run(run.snapshots)
        assert now != memory and rescue(snapshots.target, now, sweeps=True, former=[memory]) is None
        assert not memory.exists()
    newest = survey(run).newest
    assert newest is not None and newest.end == 33


@pytest.mark.parametrize("copies", [0, 1])
def test_a_full_disk_leaves_everything_as_it_was(run: RunFolder, monkeypatch: pytest.MonkeyPatch, copies: int) -> None:
    """It has room for so many files: not for the segment, or for that and not for the snapshot in memory."""
    alone(run)
    with Snapshots(run.snapshots, keep=9) as snapshots:
        memory = folder_of_run(run.snapshots)
        snapshots.save(40, {"model/a": torch.zeros(2)}, {}, memory=memory, wait=True)
        before = {path: path.read_bytes() if path.is_file() else b"" for path in run.root.rglob("*")}
        copied: list[Path] = []

        def full(source: Path, target: Path) -> None:
            if len(copied) == copies:
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
            copied.append(target)
            target.write_bytes(source.read_bytes())

        monkeypatch.setattr(shutil, "copy2", full)
        with pytest.raises(CheckpointError) as told:
            set_back(run, 33, ready=lambda: pytest.fail("something moves"))
        assert str(told.value).startswith(
            "The run could not be set back: No space left on device.\n  field:     aside\n"
        )
        assert told.value.next_step == "Nothing has changed: free space, and run the same command again."
        assert "aside" in told.value.found and len(copied) == copies
        after = {path: path.read_bytes() if path.is_file() else b"" for path in run.root.rglob("*")}
        assert {path: data for path, data in after.items() if path.name != "aside"} == before
        assert survey(run).in_memory == (40,)
        shutil.rmtree(memory)


@pytest.mark.parametrize("how", ["damaged", "far shorter"])
def test_a_rank_that_lost_records_does_not_end_the_others_earlier(tmp_path: Path, how: str) -> None:
    """Set back to a step that the others hold: cut where the damage begins, its file would look as after a kill."""
    run = RunFolder(tmp_path / "run")
    run.create()
    snapshot(run, 10, 1)
    for rank in range(RANKS):
        write(run.journal, rank, range(11, 13 if (rank, how) == (1, "far shorter") else 91))
    if how == "damaged":
        path = next(slot.path for slot in slots(run.journal) if slot.rank == 1)
        whole = path.read_bytes()
        at = whole.rindex(b"TKJR", 0, len(whole) // 4)
        path.write_bytes(whole[: at + 30] + b"?" + whole[at + 31 :])
    assert [(lead.end, lead.covered.lost) for lead in survey(run).leads] == [(90, (1,))]
    assert set_back(run, 60).replayed == 50
    assert [(lead.end, lead.covered.lost) for lead in survey(run).leads] == [(60, (1,))]
    assert set_back(run, 60).moved == ()


def test_a_run_that_went_on_with_another_number_of_ranks(run: RunFolder) -> None:
    """Its snapshot is of one rank, the journal after it of three: those are what a resume goes on with."""
    for slot in slots(run.journal):
        slot.path.unlink()
    for rank in range(RANKS):
        write(run.journal, rank, range(31, 36), attempt=3, base_step=30, base_attempt=2)
    newest = survey(run).newest
    assert newest is not None and newest.end == 35
    assert newest.base is not None and (newest.base.world_size, newest.found.world_size) == (RANKS, 1)
    assert set_back(run, 33).replayed == 3
    newest = survey(run).newest
    assert newest is not None and newest.end == 33


@pytest.mark.parametrize(
    ("step", "expected"), [(29, "steps 20 to 28, after the snapshot of step 20"), (5, "steps 10 to 28, 30 to 35")]
)
def test_a_step_that_nothing_leads_to_is_refused_and_nothing_moves(run: RunFolder, step: int, expected: str) -> None:
    alone(run)
    before = sorted(path for path in run.root.rglob("*"))
    with pytest.raises(CheckpointError) as told:
        set_back(run, step)
    assert f"expected:  {expected}" in str(told.value) and "--inspect" in str(told.value)
    assert sorted(path for path in run.root.rglob("*")) == before
