"""A script or its data changed between two attempts: what would be silently wrong is refused, the rest is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, batches, digest, events, loss_fn

import trainingkit as tk
from trainingkit.core import decisions, toml
from trainingkit.core.errors import CheckpointError, ConfigError
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.fit import Trainer
from trainingkit.trainer.recipe import load_recipe

INT4, INT8 = "all|int4(block=64)", "all|int8(block=64)"
TINY = Path(__file__).with_name("tiny.toml")


@pytest.fixture(autouse=True)
def threads_stay() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def script(folder: Path, steps: int, *, kind: Any = torch.optim.AdamW, **sections: dict[str, Any]) -> Net:
    """A script's loop up to `steps`."""
    torch.manual_seed(1)
    model = Net(0.0)
    table: dict[str, dict[str, Any]] = {"run": {}, "sync": {"codec": INT4}, "snapshot": {"every": 0}, **sections}
    table["run"] = {"steps": steps, "folder": str(folder), "threads": 1, **table["run"]}
    with tk.attach(model, kind(model.parameters(), lr=0.01), table) as kit:
        for batch in kit.batches(batches(7)):
            kit.step(loss_fn, batch)
    return model


def changed(folder: Path) -> list[str]:
    return [text for _, event, text in events(folder) if event == "changed"]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_another_optimizer_is_refused(tmp_path: Path, kind: Any) -> None:
    script(tmp_path, 3)
    with pytest.raises(CheckpointError, match="The optimizer is not of the class that made the snapshot") as caught:
        script(tmp_path, 6, kind=kind)
    error = caught.value
    assert (error.field, error.found, error.expected) == ("optimizer", kind.__name__, "AdamW")
    assert error.next_step == "Build the loop with AdamW again, or begin a new run in another folder."
    assert digest(script(tmp_path, 6).state_dict()) == digest(script(tmp_path.with_name("straight"), 6).state_dict())


def test_a_class_of_the_same_name_goes_on(tmp_path: Path) -> None:
    """A script's own class may move to another module."""
    script(tmp_path, 3)
    moved = script(tmp_path, 6, kind=type("AdamW", (torch.optim.AdamW,), {}))
    assert [at for at, event, _ in events(tmp_path) if event == "resume"] == [3]
    assert digest(moved.state_dict()) == digest(script(tmp_path.with_name("straight"), 6).state_dict())


def test_settings_of_a_script_that_changed_are_said_once_and_kept(tmp_path: Path) -> None:
    script(tmp_path, 3)
    assert changed(tmp_path) == []
    other = {"sync": {"codec": INT8}, "step": {"accumulate": 2, "clip_norm": 0.5}}
    script(tmp_path, 5, **other)
    said = changed(tmp_path)
    assert [text.partition(" (")[0] for text in said] == [
        "Changed: run.steps: 3 -> 5",
        "Changed: step.accumulate: 1 -> 2",
        "Changed: step.clip_norm: 1.0 -> 0.5",
        f"Changed: sync.codec: {INT4} -> {INT8}",
    ]
    assert said[-1].endswith("(gradients travel differently from here on)")
    kept = {row["choice"]: (row["step"], row["value"]) for row in decisions.read(RunFolder(tmp_path).decisions)}
    assert kept["sync.codec"] == (3, INT8) and kept["step.clip_norm"] == (3, 0.5)
    assert toml.load(RunFolder(tmp_path).recipe)["sync"]["codec"] == INT8
    script(tmp_path, 5, **other)
    assert changed(tmp_path) == said, "the second time nothing has changed"


def test_a_seed_that_changed_is_refused(tmp_path: Path) -> None:
    script(tmp_path, 3)
    before = RunFolder(tmp_path).recipe.read_bytes()
    with pytest.raises(ConfigError, match="This setting cannot change when a run is resumed") as caught:
        script(tmp_path, 6, run={"seed": 9}, sync={"codec": INT8})
    error = caught.value
    assert (error.field, error.found, error.expected) == ("run.seed", "9", "0, as the run began")
    assert error.next_step == "Leave it, or begin anew: name another run.folder, and set run.seed there."
    assert RunFolder(tmp_path).recipe.read_bytes() == before and changed(tmp_path) == []


def test_a_folder_that_was_moved_and_one_of_an_earlier_version(tmp_path: Path) -> None:
    script(tmp_path / "old", 3)
    run = RunFolder((tmp_path / "old").rename(tmp_path / "new"))
    _, _, text = run.recipe.read_text().partition("\n")
    assert "max_ratio" in text
    lines = [line for line in text.splitlines() if not line.startswith("max_ratio")]
    run.recipe.write_text("\n".join([*lines, "[gone]", "setting = 3"]))
    script(run.root, 3)
    assert changed(run.root) == []


@pytest.mark.parametrize("edited", [True, False])
def test_other_data_of_the_same_length_are_said(tmp_path: Path, edited: bool) -> None:
    data, run = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    data.write_text("".join(f"line {number} of words\n" for number in range(1000, 1400)))
    sets = [f"data={{kind='text', path='{data}', seq_len=32}}", "batch.size=2", "run.threads=1"]
    Trainer(load_recipe(str(TINY), [*sets, "run.steps=2"]), run=run).fit()
    if edited:
        data.write_text(data.read_text().replace("words", "w0rds"))
    Trainer(load_recipe(str(TINY), [*sets, "run.steps=3"]), run=run).fit()
    said = [text for _, event, text in events(run.root) if event == "data"]
    assert len(said) == edited
    if edited:
        assert said[0].startswith("The data are not those that the snapshot was made with: found SHA-256 ")
