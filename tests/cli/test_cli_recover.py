"""`trainingkit recover`: what it shows, how it sets a run back, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_inside import Command

from trainingkit.cli.recover import recover
from trainingkit.cli.recover_asked import in_words
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
        (("--to-step", 24), 2, "found:     24\n  expected:  steps 10 to 23\n"),
        (("--to-step", 5), 2, "found:     5\n  expected:  steps 10 to 23\n"),
        (("--to-step", -3), 2, "found:     -3\n  expected:  steps 10 to 23\n"),
        (("--to-step", 24, "--inspect"), 2, "found:     24\n  expected:  steps 10 to 23\n"),
        (("--to-step", 15, "--skip-batches", "15..16"), 2, "A..B, two steps after that of --to-step"),
        (("--to-step", 15, "--skip-batches", "16-17"), 2, "found:     16-17\n"),
        (("--skip-batches", "16..17"), 2, "found:     16..17 without --to-step"),
    ],
)
def test_what_it_refuses(command: Command, run: RunFolder, options: tuple[object, ...], code: int, text: str) -> None:
    ended = command("recover", run.root, *options)
    assert ended.code == code and text in ended.stderr
    assert not (run.root / "aside").exists() and not run.skips.exists()


def test_of_many_steps_the_first_and_the_last_are_named() -> None:
    few, many = [(at, at) for at in range(0, 52, 4)], [(at, at + 1) for at in range(0, 160, 4)]
    assert in_words(few) == "steps 0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48"
    assert in_words(many).startswith("steps 0 to 1, 4 to 5, 8 to 9, 12 to 13, 16 to 17, 20 to 21, 28 others, 136 to ")
    assert in_words(many).endswith(", 156 to 157")


def test_a_run_at_work_is_left_alone(command: Command, run: RunFolder) -> None:
    with run.locked():
        ended = command("recover", run.root, "--to-step", 15)
        assert ended.code == 2 and "Another job is at work" in ended.stderr
        assert command("recover", run.root, "--inspect").code == 0


def test_a_folder_without_a_run_is_refused(command: Command, tmp_path: Path) -> None:
    ended = command("recover", tmp_path, "--inspect")
    assert ended.code == 2 and "holds no recipe.toml" in ended.stderr


def test_a_step_in_a_gap_is_refused_with_all_ranges_and_why(command: Command, run: RunFolder) -> None:
    segment = run.journal / "rank-0" / "seg-00000011.a1.tkj"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    ended = command("recover", run.root, "--to-step", 19)
    assert ended.code == 2 and "expected:  steps 10 to 1" in ended.stderr, ended.stderr
    assert ", 20\n" in ended.stderr


def everything(run: RunFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.root.rglob("*") if path.is_file()}


def test_inspect_with_a_step_tells_what_would_be_done_and_does_nothing(command: Command, run: RunFolder) -> None:
    write_skips(run, [(9, 9), (21, 9999)])
    before = everything(run)
    ended = command("recover", run.root, "--to-step", 15, "--skip-batches", "16..17", "--inspect")
    assert ended.code == 0, ended.stderr
    assert "Covered: steps 10 to 23\nA resume goes on from step 23.\n" in ended.stdout
    told = ended.stdout.partition("With --to-step 15 and without --inspect (nothing has changed now):\n")[2]
    aside = (
        f"  It would put aside below {run.root}/aside: the snapshot of step 20, the journal's records after step 15.\n"
    )
    assert told.startswith(aside)
    assert "  A resume would go on from step 15: the snapshot of step 10 and 5 steps of the journal.\n" in told
    assert "  It would leave out the batches of steps 16 to 17.\n" in told
    assert "21..9999 would be dropped from skips.json" in told
    assert everything(run) == before and not (run.root / "aside").exists()


def test_a_list_that_is_dropped_is_named(command: Command, run: RunFolder) -> None:
    write_skips(run, [(9, 9), (17, 18), (21, 9999)])
    ended = command("recover", run.root, "--to-step", 15, "--skip-batches", "17..18")
    assert "Of an earlier --skip-batches, 21..9999 is dropped from skips.json" in ended.stdout
    assert read_skips(run) == [(9, 9), (17, 18)]
    (row,) = decisions.read(run.decisions)
    assert row["reason"].endswith("; no longer left out: batches of 21..9999")
    again = command("recover", run.root, "--to-step", 15, "--skip-batches", "17..18")
    assert "Of an earlier" not in again.stdout and read_skips(run) == [(9, 9), (17, 18)]


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("16..20", None),
        ("16..21", "taken the batches of 21 anyway; step 16 goes on with those of step 22."),
        ("16..9999", "The run ends at step 20 (run.steps), so it would not have taken the batches of 21 to 9999"),
        ("21..30", "All of 21 to 30 lies beyond run.steps = 20: it counts only if the run is prolonged."),
    ],
)
def test_batches_beyond_the_end_are_named(command: Command, run: RunFolder, span: str, text: str | None) -> None:
    run.recipe.write_text("[run]\nsteps = 20\n")
    ended = command("recover", run.root, "--to-step", 15, "--skip-batches", span)
    assert ended.code == 0, ended.stderr
    assert (text in ended.stdout) if text else ("run.steps" not in ended.stdout)


def test_a_run_without_a_snapshot_is_told_what_to_do(command: Command, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    run.recipe.write_text("[model]\n")
    ended = command("recover", run.root)
    train = f"Train again: trainingkit train {run.recipe}."
    assert ended.code == 0 and f"there is nothing to go back to.\n  next step: {train}\n" in ended.stdout
    ended = command("recover", run.root, "--to-step", 3)
    assert ended.code == 2 and "expected:  a run with a whole snapshot" in ended.stderr and train in ended.stderr


def test_a_single_step_is_covered_alone(command: Command, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    run.recipe.write_text("")
    with Snapshots(run.snapshots, keep=9) as snapshots:
        snapshots.save(0, {"model/a": torch.zeros(2)}, {}, wait=True)
    assert "Covered: step 0 alone\n" in command("recover", run.root).stdout
