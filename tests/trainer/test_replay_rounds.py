"""Ranks that train apart are killed at once: they go on from the agreed model of the last round that was applied."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from journal_runs import INT4, STEPS, State, train
from small_runs import events

from ranks import Pool, RankFailed
from trainingkit.cli.recover_asked import lead_to
from trainingkit.core.errors import CheckpointError
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery.journal import set_back, slots, survey

TOPK = "topk(density=0.05, chunk=4096)|int4"
NO_SNAPSHOT: State = {"snapshot": {"every": 0}}


def run(pool: Pool, folder: Path, text: str, *, ranks: int = 2, kill: Any = None, **options: Any) -> Any:
    return pool.run(train, ranks, str(folder), {"codec": text}, kill, options)


def killed(pool: Pool, folder: Path, text: str, kill: tuple[int, float], **options: Any) -> None:
    with pytest.raises(RankFailed):
        run(pool, folder, text, kill=kill, **options)


def rounds_of(straight: Any) -> list[int]:
    """The steps of a run in which rounds were applied."""
    agreed = {step: state["agreed"] for step, state in straight[0][0].items()}
    return [step for step in sorted(agreed) if step > 1 and agreed[step] != agreed[step - 1]]


def check_same(resumed: Any, straight: Any, step: int) -> None:
    for (_, begun), (states, _) in zip(resumed, straight, strict=True):
        assert begun["step"] == step
        expected = states[step]
        assert {name: begun[name] for name in expected} == expected


def told(folder: Path, kind: str) -> list[str]:
    return [text for _, event, text in events(folder) if event == kind]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (f"every(4)|{INT4}", 3),
        (f"every(4, tau=2)|{TOPK}", 2),
        (f"every(6, fragments=3, outer_lr=0.7, outer_momentum=0.9, nesterov=true)|{INT4}", 3),
        ("every(5, delay=1)|none", 2),
    ],
)
def test_the_agreed_model_of_the_last_round_comes_back(pool: Pool, tmp_path: Path, text: str, ranks: int) -> None:
    straight = run(pool, tmp_path / "straight", text, ranks=ranks, **NO_SNAPSHOT)
    folder = tmp_path / "run"
    killed(pool, folder, text, (17, 0.0), ranks=ranks, **NO_SNAPSHOT)
    resumed = run(pool, folder, text, ranks=ranks, only=True, **NO_SNAPSHOT)
    step = resumed[0][1]["step"]
    assert step in rounds_of(straight)
    assert 17 - 6 <= step <= 18
    check_same(resumed, straight, step)
    (replayed,) = told(folder, "replay")
    assert "Ranks go on from the model that was agreed on then, with the optimizers' state of step 0." in replayed
    ended = run(pool, folder, text, ranks=ranks)
    assert ended[0][1]["step"] >= step
    assert len({states[STEPS]["agreed"] for states, _ in ended}) == 1
    assert max(ended[0][0]) == STEPS


def test_a_second_death_goes_on_after_the_first_ones_rounds(pool: Pool, tmp_path: Path) -> None:
    """The second one's journal follows the replay of the first one's, from the same snapshot."""
    text, folder = f"every(4)|{INT4}", tmp_path / "run"
    killed(pool, folder, text, (10, 0.0), **NO_SNAPSHOT)
    killed(pool, folder, text, (17, 0.0), held=True, **NO_SNAPSHOT)
    before = run(pool, folder, text, only=True, **NO_SNAPSHOT)
    assert before[0][1]["step"] in (16, 17)
    assert len({begun["agreed"] for _, begun in before}) == 1
    assert told(folder, "replay")[-1].startswith("Snapshot of step 0, then 16 steps replayed")


def test_ones_rounds_are_enough(pool: Pool, tmp_path: Path) -> None:
    text, folder = f"every(4)|{INT4}", tmp_path / "run"
    straight = run(pool, folder, text, ranks=3, **NO_SNAPSHOT)
    for path in RunFolder(folder).snapshots.glob(f"step-{STEPS:08d}"):
        shutil.rmtree(path)
    for slot in slots(RunFolder(folder).journal):
        if slot.rank == 1:
            slot.path.unlink()
    resumed = run(pool, folder, text, ranks=3, only=True, **NO_SNAPSHOT)
    assert {begun["step"] for _, begun in resumed} == {24}
    assert {begun["agreed"] for _, begun in resumed} == {straight[0][0][24]["agreed"]}


def test_no_round_after_the_snapshot_leaves_nothing_to_replay(pool: Pool, tmp_path: Path) -> None:
    """The snapshot has more than the round before it: each rank's own steps since then."""
    text, folder = f"every(6)|{INT4}", tmp_path / "run"
    killed(pool, folder, text, (9, 0.0), waits=True, noted=True)
    resumed = run(pool, folder, text, only=True)
    assert resumed[0][1]["step"] == 8
    assert told(folder, "replay") == []


def test_a_run_is_set_back_to_rounds_only(pool: Pool, tmp_path: Path) -> None:
    text, folder = f"every(4)|{INT4}", tmp_path / "run"
    straight = run(pool, folder, text, **NO_SNAPSHOT)
    root = RunFolder(folder)
    assert survey(root).reach() == [(0, 0), (4, 4), (8, 8), (12, 12), (16, 16), (20, 20), (24, 24)]
    assert lead_to(survey(root), 11) is None and lead_to(survey(root), 12) is not None
    with pytest.raises(CheckpointError, match=r"(?s)step 0, or one that ends a round, up to 24"):
        set_back(root, 11)
    set_back(root, 12)
    check_same(run(pool, folder, text, only=True, **NO_SNAPSHOT), straight, 12)


@pytest.mark.parametrize(("before", "after"), [("every(4)", "every(3)"), ("every(4)", ""), ("", "every(4)")])
def test_what_travelled_otherwise_is_not_replayed(pool: Pool, tmp_path: Path, before: str, after: str) -> None:
    folder = tmp_path / "run"
    first, second = (f"{each}|{INT4}".removeprefix("|") for each in (before, after))
    killed(pool, folder, first, (10, 0.0), **NO_SNAPSHOT)
    resumed = run(pool, folder, second, only=True, **NO_SNAPSHOT)
    assert resumed[0][1]["step"] == 0
    what = "rounds" if after else "gradients"
    assert any(f"not replayed: {what} travel otherwise" in text for text in told(folder, "journal"))
