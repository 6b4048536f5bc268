"""`trainingkit recover`: what it shows, how it sets a run back, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_inside import Command

from trainingkit.cli.recover import recover
from trainingkit.core import decisions
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import Snapshots
from trainingkit.recovery.journal import MARK, JournalWriter, Origin, row_name
from trainingkit.recovery.memory import folder_of_run
from trainingkit.trainer.skipping import read_skips, write_skips


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A snapshot of step 10 and one of step 20, of one process, and its journal to step 23."""
    run = RunFolder(tmp_path / "run")
    run.create()
    run.recipe.write_text("")
    with Snapshots(run.snapshots, keep=9) as snapshots:
        for step in (10, 20):
            snapshots.save(step, {"model/a": torch.zeros(2)}, {MARK: {"run": "r", "attempt": 1}}, wait=True)
    writer = JournalWriter(run.journal, fsync_s=60.0, queue_bytes=1 << 20)
    writer.begin(Origin("r", 1, 0, 1, 10, 1), oldest_step=0)
    for step in range(11, 24):
        shared = {"set": {"covered": True, "buckets": [["a"]]}} if step == 11 else {}
        head = {"numbers": {"committed": True}, "shared": shared, "own": {}}
        writer.append(step, head, {row_name(0, 0): bytes(100)})
    writer.close()
    return run


def test_inspect_shows_snapshots_segments_and_reach(command: Command, run: RunFolder) -> None:
    segment = run.journal / "rank-0" / "seg-00000011.a1.tkj"
    segment.write_bytes(segment.read_bytes()[:-7])
    (run.snapshots / "step-00000010" / "shared.json").unlink()
    ended = command("recover", run.root, "--inspect")
    assert ended.code == 0, ended.stderr
    assert "step 20: whole, of 1 rank; the journal leads on to step 22" in ended.stdout
    assert "step 10: damaged: shared.json is missing" in ended.stdout
    assert "rank 0  seg-00000011.a1.tkj" in ended.stdout
    assert "steps 11 to 22, then cut short at byte" in ended.stdout
    assert "Covered: steps 20 to 22\nA resume goes on from step 22.\n" in ended.stdout
    assert command("recover", run.root).stdout == ended.stdout


def test_a_run_is_set_back_and_what_was_asked_for_is_kept(command: Command, run: RunFolder) -> None:
    ended = command("recover", run.root, "--to-step", 15, "--skip-batches", "16..17", "--skip-batches", "20..20")
    assert ended.code == 0, ended.stderr
    assert "Put aside: rank-0/seg-00000011.a1.tkj, snapshots/step-00000020\n" in ended.stdout
    assert "A resume goes on from step 15: the snapshot of step 10 and 5 steps of the journal.\n" in ended.stdout
    assert read_skips(run) == [(16, 17), (20, 20)]
    (row,) = decisions.read(run.decisions)
    assert (row["step"], row["value"]) == (15, 15)
    assert row["reason"].endswith("batches of steps 16 to 17 are left out; batches of steps 20 to 20 are left out")
    assert "Covered: steps 10 to 15\n" in command("recover", run.root, "--inspect").stdout
    ended = command("recover", run.root, "--to-step", 12)
    assert ended.code == 0 and read_skips(run) == []


def test_a_kill_while_it_is_set_back_loses_no_list(
    command: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be left out is there before anything moves, and what was asked for earlier still is."""
    write_skips(run, [(30, 31)])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trainingkit.recovery.journal.setback._put_aside", killed)
        with pytest.raises(KeyboardInterrupt):
            recover(run.root, to_step=15, skip_batches=["16..17"])
    assert read_skips(run) == [(16, 17), (30, 31)]
    assert command("recover", run.root, "--to-step", 15, "--skip-batches", "16..17").code == 0
    assert read_skips(run) == [(16, 17)]


def test_a_snapshot_in_memory_is_shown_and_put_aside(command: Command, run: RunFolder) -> None:
    with Snapshots(run.snapshots, keep=9) as snapshots:
        snapshots.save(26, {"model/a": torch.zeros(2)}, {}, memory=folder_of_run(run.snapshots), wait=True)
    shown = command("recover", run.root, "--inspect").stdout
    assert "Memory of this host\n  step 26\n" in shown
    assert shown.endswith("It puts the snapshot of step 26 together first, if hosts' memory has all of it.\n")
    ended = command("recover", run.root, "--to-step", 22)
    assert ended.code == 0 and "memory/step-00000026\n" in ended.stdout
    assert "Memory" not in command("recover", run.root, "--inspect").stdout


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--to-step", 24), 1, "steps 20 to 23, after the snapshot of step 20"),
        (("--to-step", 5), 1, "steps 10 to 23"),
        (("--to-step", 15, "--skip-batches", "15..16"), 2, "A..B, two steps after that of --to-step"),
        (("--to-step", 15, "--skip-batches", "16-17"), 2, "found:     16-17\n"),
        (("--skip-batches", "16..17"), 2, "found:     16..17 without --to-step"),
    ],
)
def test_what_it_refuses(command: Command, run: RunFolder, options: tuple[object, ...], code: int, text: str) -> None:
    ended = command("recover", run.root, *options)
    assert ended.code == code and text in ended.stderr
    assert not (run.root / "aside").exists() and not run.skips.exists()


def test_a_run_at_work_is_left_alone(command: Command, run: RunFolder) -> None:
    with run.locked():
        ended = command("recover", run.root, "--to-step", 15)
        assert ended.code == 2 and "Another job is at work" in ended.stderr
        assert command("recover", run.root, "--inspect").code == 0


def test_a_folder_without_a_run_is_refused(command: Command, tmp_path: Path) -> None:
    ended = command("recover", tmp_path, "--inspect")
    assert ended.code == 2 and "holds no recipe.toml" in ended.stderr
