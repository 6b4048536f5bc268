"""The last completed step survives: all ranks are killed at once, and what is replayed is what it would have been."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from journal_runs import INT4, STEPS, State, noted_last, refused, saved_twice, train
from small_runs import digest, events

from ranks import Pool, RankFailed
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import find
from trainingkit.recovery.journal import slots

RANKS = 3
Kill = tuple[int, float]
NORMALISED = {"codec": "all|int3(block=64)", "normalise": True, "warmup_steps": 5}
NO_SNAPSHOT: State = {"snapshot": {"every": 0}}


def run(pool: Pool, folder: Path, sync: State, *, ranks: int = RANKS, kill: Kill | None = None, **options: Any) -> Any:
    return pool.run(train, ranks, str(folder), sync, kill, options)


def killed(pool: Pool, folder: Path, sync: State, kill: Kill, **options: Any) -> None:
    with pytest.raises(RankFailed):
        run(pool, folder, sync, kill=kill, **options)


def at_random(draw: random.Random) -> Kill:
    """A moment in the middle of any step but the first and the last."""
    return draw.randint(2, STEPS - 2), draw.uniform(0.0, 0.05)


def check_same(resumed: Any, straight: Any, folder: Path) -> int:
    """Every rank begins with what it had after that step; returns the step."""
    step = resumed[0][1]["step"]
    for rank, (_, begun) in enumerate(resumed):
        expected = straight[rank][0][step]
        assert begun["step"] == step
        assert {name: begun[name] for name in expected} == expected, f"rank {rank} at step {step}"
    assert [at for at, event, _ in events(folder) if event == "resume"][-1] == step
    return step


@pytest.fixture(scope="module")
def straight(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(pool, tmp_path_factory.mktemp("straight") / "run", {})


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_once_at_a_random_moment(pool: Pool, tmp_path: Path, straight: Any, seed: int) -> None:
    folder = tmp_path / "run"
    killed(pool, folder, {}, at_random(random.Random(seed)))
    resumed = run(pool, folder, {}, only=True)
    assert check_same(resumed, straight, folder) >= 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_once_twenty_times(pool: Pool, tmp_path: Path, straight: Any) -> None:
    draw, steps = random.Random(7), []
    for number in range(20):
        folder = tmp_path / str(number)
        killed(pool, folder, {}, at_random(draw))
        steps.append(check_same(run(pool, folder, {}, only=True), straight, folder))
    assert len(set(steps)) > 5


@pytest.mark.parametrize(
    ("sync", "ranks", "options"),
    [
        (NORMALISED, 3, NO_SNAPSHOT),
        ({"codec": "topk(density=0.05, chunk=4096)|int4", "warmup_steps": 4}, 3, NO_SNAPSHOT),
        ({}, 2, {"step": {"accumulate": 2, "clip_norm": 0.05}}),
        ({}, 3, {"step": {"clip_norm": 0.0}, "spoil": 9, **NO_SNAPSHOT}),
        ({}, 2, {"own_rate": True, **NO_SNAPSHOT}),
        ({}, 2, {"own_groups": True, **NO_SNAPSHOT}),
    ],
    ids=["normalised", "topk", "two ranks, accumulating", "aborted step", "a rate of the loop's own", "own settings"],
)
def test_without_its_newest_snapshots_a_run_is_replayed_to_its_end(
    pool: Pool, tmp_path: Path, sync: State, ranks: int, options: State
) -> None:
    folder = tmp_path / "run"
    before = run(pool, folder, sync, ranks=ranks, **options)
    steps = max(before[0][0])
    lose_newest(folder)
    again: State = {**options, "run": {"steps": steps}}
    resumed = run(pool, folder, sync, ranks=ranks, only=True, **again)
    assert check_same(resumed, before, folder) == steps == STEPS


def test_a_step_with_a_setting_that_cannot_be_recorded_ends_the_replay_before_it(pool: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = run(pool, folder, {}, ranks=2, strange=9, **NO_SNAPSHOT)
    lose_newest(folder)
    resumed = run(pool, folder, {}, ranks=2, only=True, **NO_SNAPSHOT)
    assert check_same(resumed, before, folder) == 8
    told = [text for _, event, text in events(folder) if event == "journal"]
    assert told == [
        "Step 9 was taken with a setting of the optimizer that cannot be recorded (other): after a loss the run goes "
        "on before it, or from a later snapshot.",
        "The journal ends at step 8: step 9 was taken with a setting of the optimizer that the journal could not keep: "
        "other.",
    ]


@pytest.mark.parametrize("part", ["parameters", "the optimizer's state"])
def test_what_the_loop_changed_itself_ends_the_replay_before_the_next_step(
    pool: Pool, tmp_path: Path, part: str
) -> None:
    folder = tmp_path / "run"
    before = run(pool, folder, {}, ranks=2, meddles=(9, part), **NO_SNAPSHOT)
    lose_newest(folder)
    resumed = run(pool, folder, {}, ranks=2, only=True, **NO_SNAPSHOT)
    assert check_same(resumed, before, folder) == 9
    (told,) = [text for _, event, text in events(folder) if event == "journal"]
    assert told.startswith(
        f"The replay ends at step 9: before step 10 the loop itself changed {part}, which the journal"
    )


def test_what_the_loop_changed_right_after_the_snapshot_leaves_nothing_to_replay(pool: Pool, tmp_path: Path) -> None:
    """It also comes from the snapshot, which was taken before."""
    folder = tmp_path / "run"
    run(pool, folder, {}, ranks=2, meddles=(16, "parameters"))
    lose_newest(folder)
    assert run(pool, folder, {}, ranks=2, only=True)[0][1]["step"] == 16
    assert not any(event == "replay" for _, event, _ in events(folder))


@pytest.mark.parametrize("other", [False, True], ids=["gone", "another run's"])
def test_a_journal_that_is_not_there_is_said(pool: Pool, tmp_path: Path, other: bool) -> None:
    folder = tmp_path / "run"
    run(pool, folder, {}, ranks=2)
    lose_newest(folder)
    shutil.rmtree(RunFolder(folder).journal)
    if other:
        run(pool, tmp_path / "other", {}, ranks=2)
        shutil.copytree(RunFolder(tmp_path / "other").journal, RunFolder(folder).journal)
    assert run(pool, folder, {}, ranks=2, only=True)[0][1]["step"] == 16
    text = "A journal was kept, but nothing of this run's is there: it goes on from step 16."
    assert (16, "journal", text) in events(folder)


def test_a_second_save_of_a_step_lets_the_segment_be(pool: Pool, tmp_path: Path) -> None:
    assert pool.run(saved_twice, 2, str(tmp_path / "run")) == [([], [1, 9])] * 2


def test_a_journal_of_an_earlier_version_is_not_taken_for_another_optimizers(pool: Pool, tmp_path: Path) -> None:
    """Its records do not hold the settings of groups."""
    folder = tmp_path / "run"
    run(pool, folder, {}, ranks=2, older=True)
    lose_newest(folder)
    assert run(pool, folder, {}, ranks=2, only=True)[0][1]["step"] == 16
    text = "an earlier version wrote it, which did not keep the settings of the optimizer's groups"
    assert (16, "journal", f"8 steps of the journal were not replayed: {text}.") in events(folder)


def test_under_auto_a_run_is_replayed_to_where_it_went_plain(pool: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = run(pool, folder, {"codec": "auto"}, **NO_SNAPSHOT)
    lose_newest(folder)
    resumed = run(pool, folder, {"codec": "auto"}, only=True)
    step = check_same(resumed, before, folder)
    assert step >= 3
    told = [text for _, event, text in events(folder) if event == "journal"]
    if step < STEPS:
        assert f"Step {step + 1} sent no squeezed gradients" in told[0]
        assert f"step {step + 1} travelled in a way that the journal does not keep" in told[-1]


def lose_newest(folder: Path) -> None:
    """All snapshots but the oldest go."""
    for found in find(RunFolder(folder).snapshots)[:-1]:
        shutil.rmtree(found.path)


def test_one_ranks_files_may_be_lost(pool: Pool, tmp_path: Path, straight: Any) -> None:
    folder = tmp_path / "run"
    run(pool, folder, {})
    lose_newest(folder)
    shutil.rmtree(RunFolder(folder).journal / "rank-1")
    resumed = run(pool, folder, {}, only=True)
    for rank, (_, begun) in enumerate(resumed):
        expected = straight[rank][0][STEPS]
        for name in ("model", "optimizer", "rate", "progress"):
            assert begun[name] == expected[name]
        assert (begun["random"] == expected["random"]) == (rank != 1)
    (text,) = (text for _, event, text in events(folder) if event == "replay")
    assert "The records of rank 1 are lost: its random state is that of step 16" in text


def test_a_resumed_run_goes_on_and_is_covered_again(pool: Pool, tmp_path: Path) -> None:
    """What the first attempt wrote goes when every snapshot is newer than the second one's beginning."""
    folder = tmp_path / "run"
    longer: State = {"run": {"steps": 40}}
    killed(pool, folder, {}, (11, 0.01))
    before = run(pool, folder, {}, **longer)
    assert max(before[0][0]) == 40
    lose_newest(folder)
    resumed = run(pool, folder, {}, only=True, **longer)
    assert check_same(resumed, before, folder) == 40
    assert {slot.attempt for slot in slots(RunFolder(folder).journal)} == {2, 3}


def check_noted(resumed: Any, folder: Path) -> int:
    """Every rank begins with what it noted last of that step; returns the step."""
    step = resumed[0][1]["step"]
    for rank, (_, begun) in enumerate(resumed):
        state = {name: value for name, value in begun.items() if name not in ("step", "written")}
        assert (begun["step"], digest(state)) == (step, noted_last(folder, rank)[step]), f"rank {rank} at step {step}"
    return step


def test_a_run_that_dies_again_before_its_next_snapshot_loses_nothing(pool: Pool, tmp_path: Path) -> None:
    """Twice it is killed a little after a resume, and no snapshot came to its end since the first attempt."""
    folder = tmp_path / "run"
    killed(pool, folder, {}, (11, 0.2), noted=True, waits=True)
    killed(pool, folder, {}, (13, 0.2), noted=True, held=True)
    killed(pool, folder, {}, (15, 0.2), noted=True, held=True)
    assert {found.step for found in find(RunFolder(folder).snapshots) if found.problem is None} == {0, 8}
    assert check_noted(run(pool, folder, {}, only=True), folder) == 15
    texts = [text for _, event, text in events(folder) if event == "replay"]
    assert len(texts) == 3 and all(text.startswith("Snapshot of step 8, then ") for text in texts)


def test_a_journal_that_is_switched_on_covers_the_next_step(pool: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(pool, folder, {}, (11, 0.0), journal={"steps": "off"}, waits=True)
    killed(pool, folder, {}, (14, 0.2), noted=True)
    assert check_noted(run(pool, folder, {}, only=True), folder) == 14


def test_a_snapshot_in_memory_is_where_a_replay_begins(pool: Pool, tmp_path: Path, straight: Any) -> None:
    folder = tmp_path / "run"
    memory: State = {"snapshot": {"every": 0, "memory_every": 5}}
    killed(pool, folder, {}, (12, 0.0), waits=True, **memory)
    resumed = run(pool, folder, {}, only=True, **memory)
    assert check_same(resumed, straight, folder) in (11, 12)
    (text,) = (text for _, event, text in events(folder) if event == "replay")
    assert text.startswith("Snapshot of step 10, then ")


@pytest.mark.parametrize("codec", [INT4, "auto"])
def test_a_refusal_of_one_rank_is_told_to_all(pool: Pool, tmp_path: Path, codec: str) -> None:
    """Under "auto", too, where ranks that come through prepare the next rung together."""
    folder = tmp_path / "run"
    killed(pool, folder, {"codec": codec}, (4, 0.01))
    told = pool.run(refused, RANKS, str(folder), codec)
    assert told == ["A snapshot failed: ValueError: this rank's own trouble"] * RANKS


def test_what_cannot_be_replayed_is_said_and_not_taken(pool: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(pool, folder, {})
    lose_newest(folder)
    other = run(pool, folder, {"codec": "all|int8(block=64)"}, only=True)
    assert other[0][1]["step"] == 16
    assert (16, "journal", "8 steps of the journal were not replayed: gradients travel otherwise in this run than when "
            "it was written.") in events(folder)  # fmt: skip
    fewer = run(pool, folder, {}, ranks=2, only=True)
    assert fewer[0][1]["step"] == 16
    text = "The journal is of 3 ranks and 2 go on: 8 steps after 16 were not replayed. A resume with 3 workers can, "
    text += "and after it one with another number."
    assert (16, "journal", text) in events(folder)
    plain = tmp_path / "plain"
    run(pool, plain, {"codec": "none"})
    text = "The journal does not cover a run in which no squeezed gradients travel: after a loss this run goes on from "
    assert (0, "journal", text + "its newest snapshot.") in events(plain)
    assert not RunFolder(plain).journal.exists()


def test_the_journal_changes_no_number(pool: Pool, tmp_path: Path, straight: Any) -> None:
    """Buffers of other ranks than 0 are aligned a moment earlier, which the next step would do anyway."""
    without = run(pool, tmp_path / "run", {}, journal={"steps": "off"})
    assert without[0][0] == straight[0][0]
    for (states, _), (others, _) in zip(without, straight, strict=True):
        for step, state in states.items():
            assert {**state, "model": ""} == {**others[step], "model": ""}
    assert not RunFolder(tmp_path / "run").journal.exists()
