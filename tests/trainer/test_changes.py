"""What may change on resume: every setting has a rule, refusals say why, what is allowed is kept among decisions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainingkit.core import decisions
from trainingkit.core.errors import ConfigError, RunFolderError
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.advice import begin_again, go_on
from trainingkit.trainer.changes import FREE, FREE_REASON, KEPT, SAID, Change, note, resumed_recipe, rule_of
from trainingkit.trainer.recipe import Recipe, load_recipe, resolved_text

TINY = Path(__file__).with_name("tiny.toml")


def settings_of(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all settings; a table that a registry resolves counts as one."""
    names: list[str] = []
    for name, info in section.model_fields.items():
        kind: Any = info.annotation
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        names += settings_of(kind, f"{prefix}{name}.") if nested else [prefix + name]
    return names


def test_every_setting_has_one_rule_and_every_rule_a_setting() -> None:
    names = settings_of(Recipe)
    assert {name: rule_of(name) for name in names if rule_of(name) is None} == {}
    rules = [*FREE, *SAID, *KEPT]
    assert len(rules) == len(set(rules))
    assert {rule for rule in rules if not any(name == rule or name.startswith(f"{rule}.") for name in names)} == {
        "data.path"
    }, "beside this one, no rule is about a setting that there is not"
    assert rule_of("data.path") == "data.path" and rule_of("data.seq_len") == "data"
    assert rule_of("later.setting") is None


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.recipe.write_text(resolved_text(load_recipe(str(TINY))))
    return folder


def test_what_may_change_is_changed_said_and_kept(run: RunFolder) -> None:
    overrides = ["run.steps=40", "snapshot.every=5", "sync.codec='all|int8'", "schedule.warmup_steps=3"]
    recipe, changes = resumed_recipe(run, overrides)
    assert (recipe.run.steps, recipe.snapshot.every, recipe.sync.codec) == (40, 5, "all|int8(block=64)")
    assert [change.setting for change in changes] == ["run.steps", "snapshot.every", "sync.codec"], "3 was 3 before"
    assert str(changes[0]) == ("run.steps: 12 -> 40 (the schedule of the learning rate takes this length from here on)")
    assert "it changes no number" in str(changes[1])
    note(run, changes, step=8)
    kept = decisions.read(run.decisions)
    assert [(row["step"], row["choice"], row["value"]) for row in kept[:2]] == [
        (8, "run.steps", 40),
        (8, "snapshot.every", 5),
    ]
    assert kept[0]["reason"].startswith("set on resume instead of 12: ")


def test_what_moves_the_end_of_training_is_not_said_to_change_nothing(run: RunFolder) -> None:
    _, changes = resumed_recipe(run, ["eval.every=2", "eval.patience=1", "step.max_aborts=3", "run.log_every=2"])
    reasons = {change.setting: change.reason for change in changes}
    assert reasons.pop("run.log_every") == FREE_REASON
    assert sorted(reasons) == ["eval.every", "eval.patience", "step.max_aborts"]
    assert all("at another step" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("override", "field", "reason"),
    [
        ("run.seed=1", "run.seed", "the order of the data follows from it"),
        ("model.layers=2", "model.layers", "tensors are those of this model"),
        ("data.seq_len=64", "data.seq_len", "the position in the data"),
        ("optimizer.lr=0.5", "optimizer.lr", "the snapshot holds the optimizer's settings"),
        ("run.folder=elsewhere", "run.folder", "stays in its folder"),
        ("name=other", "name", "stays in its folder"),
    ],
)
def test_what_would_be_lost_without_a_word_is_refused(run: RunFolder, override: str, field: str, reason: str) -> None:
    before = run.recipe.read_bytes()
    with pytest.raises(ConfigError, match="This setting cannot change when a run is resumed") as caught:
        resumed_recipe(run, ["run.log_every=2", override])
    assert caught.value.field == field and reason in caught.value.problem
    assert f"trainingkit train {run.recipe} --set run.folder=NEW --set {field}=..." in str(caught.value.next_step)
    assert run.recipe.read_bytes() == before


def test_bad_overrides_and_runs_of_scripts(run: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"no setting called 'run\.stepz'"):
        resumed_recipe(run, ["run.stepz=3"])
    run.recipe.write_text("[run]\nsteps = 3\n")
    with pytest.raises(RunFolderError, match="made by a script of your own"):
        resumed_recipe(run, ["run.steps=4"])


def test_suggested_commands_survive_a_shell(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "my $run's folder")
    folder.create()
    folder.recipe.write_text(resolved_text(load_recipe(str(TINY))))
    with pytest.raises(ConfigError) as caught:
        resumed_recipe(folder, ["run.seed=1"])
    anew = str(caught.value.next_step).partition("begin anew: ")[2]
    assert shlex.split(anew)[:3] == ["trainingkit", "train", str(folder.recipe)]
    again = begin_again(folder, taken=True).partition(": ")[2]
    assert shlex.split(again) == ["trainingkit", "train", str(folder.recipe), "--set", "run.folder=NEW"]
    resume = go_on(folder).partition("`")[2].removesuffix("`")
    assert shlex.split(resume) == ["trainingkit", "resume", str(folder.root)]


def test_a_change_that_cannot_be_written_down_is_told(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.decisions.symlink_to("/dev/full")
    with pytest.raises(RunFolderError, match=r"The run folder cannot be written: No space left on device\."):
        note(run, [Change("run.log_every", 1, 2, "it is only what is shown")], step=8)
