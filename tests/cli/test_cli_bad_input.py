"""Bad input: nothing is started, and one message says what, where, what was expected and what to do next."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from cli_inside import Command, Ended
from cli_runs import TINY, recipe

from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.recipe import load_recipe

TINY_ALONE = (TINY, "--workers", "1", "--set", "run.steps=4", "--set", "run.threads=1", "--set", "snapshot.every=2")


def explains(ended: Ended, code: int, *parts: str) -> None:
    """The message came once, on stderr, in four parts and without a traceback."""
    assert ended.code == code, ended.stderr
    assert ended.stderr.startswith(("error: ", "[E", "[W")), "only c10d writes there before us"
    assert f"\n{ended.stderr}".count("\nerror: ") == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    for part in parts:
        assert part in ended.stderr, ended.stderr


SET = [
    (
        "optimizer.lrr=0.1",
        ["There is no setting called 'optimizer.lrr'", "field:     optimizer.lrr", "one of ", "Did you mean 'lr'?"],
    ),
    ("runn.steps=3", ["There is no setting called 'runn'", "Did you mean 'run'?"]),
    ("run.steps=many", ["field:     run.steps", "found:     'many'", "expected:  a valid integer"]),
    ("run.steps=0", ["field:     run.steps", "found:     0", "expected:  greater than or equal to 1"]),
    ("steps", ["An override must name a setting and a value", "field:     --set", "found:     'steps'", "for example"]),
    ("model.kind=lama", ["There is no model called 'lama'", "field:     model.kind", "Did you mean 'llama'?"]),
    ("model.heads=3", ["hidden (32) must be an even multiple of heads (3)"]),
    ("data.kind=txt", ["There is no data source called 'txt'", "Did you mean 'text'?"]),
    ("optimizer.kind=adam", ["There is no optimizer called 'adam'", "Did you mean 'adamw'?"]),
    ("schedule.kind=cosin", ["There is no schedule called 'cosin'", "Did you mean 'cosine'?"]),
    (
        "run.device=gpu",
        [
            "A setting has a value that cannot be used",
            "field:     run.device",
            "found:     'gpu'",
            "'auto', 'cpu' or 'cuda'",
        ],
    ),
    ("precision.compute=fp8", ["field:     precision.compute", "found:     'fp8'"]),
    ("sync.codec=int3", ["field:     sync.codec"]),
    ("name=a/b", ["field:     name", "found:     'a/b'"]),
]


@pytest.mark.parametrize(("override", "parts"), SET, ids=[override for override, _ in SET])
def test_a_bad_setting(command: Command, override: str, parts: list[str]) -> None:
    explains(command("train", *TINY_ALONE, "--set", override), 2, *parts)
    assert not Path("runs").exists() or not any(Path("runs").glob("*/snapshots/*"))


def test_recipes_that_cannot_be_read(command: Command) -> None:
    explains(command("train", "none.toml"), 2, "No such file", "field:     recipe", "none.toml", "next step: See `")
    explains(
        command("train", "defualt"),
        2,
        "no recipe called 'defualt'",
        "or one of: datacentre, default",
        "Did you mean 'default'?",
    )
    Path("half.toml").write_text("[run\n")
    explains(command("train", "half.toml"), 2, "not valid TOML", "half.toml")
    Path("short.toml").write_text("[model]\nkind = 'llama'\n")
    explains(command("train", "short.toml"), 2, "A setting is missing", "field:     data", "--set data=")
    Path("default").mkdir()
    assert command("train", "--dry-run").code == 0, "a folder of that name does not hide the bundled recipe"


def test_data_that_are_not_there_or_empty(command: Command, tmp_path: Path) -> None:
    text = (*TINY_ALONE, "--set", "data.kind=text", "--set", "data.seq_len=32")
    explains(command("train", *text, "--set", "data.path=nowhere"), 2, "nowhere", "field:     data.path", "expected:")
    (tmp_path / "empty.txt").touch()
    explains(command("train", *text, "--set", f"data.path={tmp_path / 'empty.txt'}"), 2, "field:     data", "empty.txt")
    (tmp_path / "short.txt").write_text("few")
    explains(command("train", *text, "--set", f"data.path={tmp_path / 'short.txt'}"), 2, "field:     data")


def test_a_model_that_needs_other_data(command: Command, tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(
        "import numpy as np\n"
        "class Side:\n"
        "    def __len__(self):\n"
        "        return 8\n"
        "    def sample(self, index):\n"
        "        return {'x': np.zeros(3, dtype=np.float32)}\n"
        "def make():\n"
        "    return Side(), Side()\n"
    )
    source = ("--set", "data.kind=python", "--set", f'data.ref="{tmp_path / "source.py"}:make"')
    explains(
        command("train", *TINY_ALONE, *source),
        2,
        "The model 'llama' is a language model, but the data are not token sequences.",
        "field:     model.kind",
        "expected:  data of task 'language'",
        "next step: Choose data.kind",
    )


def test_more_workers_than_memory(command: Command) -> None:
    ended = command("train", TINY, "--workers", "10000")
    explains(
        ended,
        2,
        "do not fit in this machine's memory",
        "field:     workers",
        "10000 workers x at least",
        "Use --workers",
    )
    assert not Path("runs").exists()


def test_a_run_folder_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "run", Path("/proc/run")):
        ended = command("train", *TINY_ALONE, "--set", f"run.folder={folder}")
        explains(
            ended, 2, "The run folder cannot be written", "field:     run.folder", str(folder), "Set run.folder to"
        )


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def test_joining_ranks_that_cannot_meet(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in (("RANK", 0), ("WORLD_SIZE", 2), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
            monkeypatch.setenv(name, str(value))
        ended = command("train", *TINY_ALONE, "--set", "sync.join_s=0.5")
        explains(
            ended, 1, "port where the workers should meet is in use", "field:     MASTER_PORT", f"127.0.0.1:{port}"
        )
    monkeypatch.setenv("MASTER_PORT", free_port())
    ended = command("train", *TINY_ALONE, "--set", "sync.join_s=0.5")
    explains(ended, 1, "1 of 2 ranks did not appear within 0.5 s", "found:     missing ranks: 1", "raise sync.join_s")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    ended = command("train", *TINY_ALONE, "--set", "sync.join_s=0.5")
    explains(
        ended, 1, "The host of rank 0 does not answer", "field:     MASTER_ADDR", "Check name, route, port and firewall"
    )
    monkeypatch.delenv("MASTER_ADDR")
    explains(
        command("train", *TINY_ALONE), 1, "RANK is set but MASTER_ADDR is not", "Start with torchrun, or unset RANK"
    )


def test_folders_that_hold_no_run(command: Command, tmp_path: Path) -> None:
    for words in (("resume",), ("eval",), ("export",), ("report",)):
        ended = command(*words, tmp_path)
        explains(ended, 2, "it holds no recipe.toml", "field:     RUN", "expected:  a folder that", "recipe.toml")
        explains(command(*words, tmp_path / "none"), 2, "it does not exist", f"found:     {tmp_path / 'none'}")
    run = RunFolder(tmp_path / "own")
    run.create()
    run.recipe.write_text('name = "own"\n')
    for words in (("resume",), ("eval",)):
        ended = command(*words, run.root)
        explains(ended, 2, "made by a script of your own", "start that script again with the same run.folder")


def test_a_run_folder_that_is_not_there_is_looked_for_near_it(command: Command, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    for age, name in enumerate(names):
        RunFolder(tmp_path / "runs" / name).create()
        (tmp_path / "runs" / name / "recipe.toml").write_text("")
        os.utime(tmp_path / "runs" / name, (1000 - age, 1000 - age))
    near = ", ".join(str(tmp_path / "runs" / name) for name in names[:3])
    for words in (("resume",), ("eval",), ("export",), ("report",), ("recover",)):
        for missing in (tmp_path / "runs" / "nosuch", tmp_path / "runs", tmp_path):
            ended = command(*words, missing)
            explains(ended, 2, f"found:     {missing}\n", f"next step: Runs near it, newest first: {near} and 1 more\n")


def test_extends_knows_bundled_recipes(command: Command, tmp_path: Path) -> None:
    """As `train` does; a file comes first, and what is neither is refused with their names."""
    path = tmp_path / "mine.toml"
    path.write_text('extends = "default"\nname = "mine"\nworkers = 1\n')
    assert load_recipe(str(path)).model_dump() == {
        **load_recipe("default").model_dump(),
        "name": "mine",
        "workers": 1,
    }
    (tmp_path / "more.toml").write_text('extends = "mine.toml"\nname = "more"\n')
    assert command("train", tmp_path / "more.toml", "--dry-run").code == 0
    assert (load_recipe(str(tmp_path / "more.toml")).name, load_recipe(str(tmp_path / "more.toml")).workers) == (
        "more",
        1,
    )
    (tmp_path / "default").write_text(f'extends = "{TINY}"\nworkers = 3\n')
    assert load_recipe(str(path)).model == load_recipe(str(TINY)).model, "the file beside it comes first"
    (tmp_path / "default").write_text('extends = "mine.toml"\n')
    explains(command("train", path), 2, "extend each other in a circle", "field:     extends")


@pytest.mark.parametrize("name", ["default.toml", "defualt"])
def test_extends_of_nothing_lists_what_there_is(command: Command, tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'extends = "{name}"\n')
    explains(
        command("train", path),
        2,
        f"There is no recipe '{name}' that mine.toml could extend",
        f"found:     {tmp_path / name}\n",
        "or one of: datacentre, default",
        'Did you mean extends = "default"?',
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process that was trained for four steps, with snapshots of step 2 and 4."""
    from trainingkit.trainer.fit import Trainer
    from trainingkit.trainer.recipe import load_recipe, resolved_text

    folder = tmp_path_factory.mktemp("trained") / "run"
    settings = load_recipe(str(recipe(folder.parent, steps=4, every=2, workers=1)))
    run = RunFolder(folder)
    run.create()
    run.recipe.write_text(resolved_text(settings))
    assert Trainer(settings, run=run).fit().steps == 4
    return folder


def damage(snapshot: Path) -> None:
    """Flip one byte in the middle of the tensors."""
    path = next(snapshot.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_a_run_folder_that_is_in_use(command: Command, trained: Path) -> None:
    ended = command("train", trained.parent / "recipe.toml")
    explains(ended, 2, "already holds snapshots of a run", "field:     run.folder", "expected:  a new folder")
    assert f"Continue it with `trainingkit resume {trained}`" in ended.stderr


def test_a_run_whose_snapshots_are_damaged(command: Command, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    text = (run / "recipe.toml").read_text().replace(str(trained), str(run)).replace("steps = 4", "steps = 6")
    (run / "recipe.toml").write_text("".join(line for line in text.splitlines(True) if not line.startswith("# crc32")))
    newest = max((run / "snapshots").glob("step-*"))
    damage(newest)
    evaluated = command("eval", run)
    assert evaluated.code == 0 and evaluated.stdout.startswith("step 2  loss ")
    explains(
        command("eval", run, "--step", 4), 1, "no whole snapshot of step 4", "field:     --step", "expected:  one of 2"
    )
    for words in (("eval", run), ("export", run)):
        missing = command(*words, "--step", 3)
        explains(
            missing, 2, "no whole snapshot of step 3", "found:     none", "expected:  one of 2", "next step: Choose"
        )
    resumed = command("resume", run)
    assert resumed.code == 0, resumed.stderr
    assert "Snapshot of step 4 is damaged and was passed over" in resumed.stdout
    assert "Continuing after step 2." in resumed.stdout
    for snapshot in (run / "snapshots").glob("step-*"):
        damage(snapshot)
    again = f"next step: Train again: trainingkit train {run}/recipe.toml --set run.folder=NEW, or restore the folder"
    for words in ("resume", "eval", "export"):
        ended = command(words, run)
        explains(ended, 1, "No snapshot of this run is whole", "field:     snapshots", "passes its manifest", again)
        assert ended.stderr.count("next step:") == 1 and "trainingkit resume" not in ended.stderr
    taken = command("train", run / "recipe.toml")
    explains(
        taken, 2, "already holds snapshots of a run", "none of them whole", "next step: Choose another run.folder."
    )
    shutil.rmtree(run / "snapshots")
    (run / "snapshots" / ".step-00000002.partial").mkdir(parents=True)
    for words in (["resume", run], ["eval", run]):
        ended = command(*words)
        explains(ended, 1, "snapshot", f"next step: Train again: trainingkit train {run}/recipe.toml.")
    explains(command("eval", run, "--step", 2), 2, "no whole snapshot of step 2", "none was", "Train the run first")
    afresh = command("train", run / "recipe.toml")
    assert afresh.code == 0, "what was never finished does not keep a run from beginning"
    assert "Snapshot of step 2 was not finished and was passed over" in afresh.stdout


def test_what_cannot_be_exported(command: Command, trained: Path) -> None:
    ended = command("export", trained, "out")
    explains(
        ended,
        2,
        "Only models from transformers can be exported",
        "field:     model.kind",
        "found:     Faulty",
        "snapshots/step-*",
    )


@pytest.mark.parametrize("words", [["trian"], ["train", "--worker", "2"], ["eval"], ["resume", "a", "b"]])
def test_mistyped_commands(command: Command, words: list[str]) -> None:
    ended = command(*words)
    assert ended.code == 2
    assert "Traceback" not in ended.stderr
    if words == ["trian"]:
        assert 'Did you mean "train"?' in ended.stderr
    if "--worker" in words:
        assert "Did you mean --workers?" in ended.stderr
