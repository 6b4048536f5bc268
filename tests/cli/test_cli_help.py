"""Manners of the command line: quick help with an example each, completion, version, a dry run that starts nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from cli_inside import Command
from cli_runs import TINY
from cyclopts import App

import trainingkit
from trainingkit.cli import make_app
from trainingkit.trainer.recipe import load_recipe


def commands(app: App, words: list[str]) -> list[list[str]]:
    """The words of a command and of all below it, as the command line itself has them."""
    found = [words]
    for name in app:
        if not name.startswith("-"):
            found += commands(app[name], [*words, name])
    return found


COMMANDS = commands(make_app(), [])
HEAVY = {"torch", "transformers", "plotly", "numpy", "jinja2"}
LIMIT_S = 0.7


def names(words: list[str]) -> str:
    return " ".join(words) or "root"


@pytest.mark.parametrize("words", COMMANDS, ids=names)
def test_help_is_quick_has_an_example_and_imports_nothing_heavy(words: list[str]) -> None:
    """Best of three; where other programs keep the cores busy, the processor time that it took is what counts."""
    tries = []
    for _ in range(3):
        seconds, shown, heavy = ask_for_help(words)
        tries.append(seconds)
        if seconds < LIMIT_S:
            break
    assert min(tries) < LIMIT_S, tries
    assert heavy == "[]"
    assert f"trainingkit {' '.join(words)}".strip() in shown
    assert ("Example" in shown) == bool(words)
    assert ("Start with: trainingkit train" in shown) == (not words)


def ask_for_help(words: list[str]) -> tuple[float, str, str]:
    """Seconds that `trainingkit WORDS --help` took, what it printed, and which heavy modules it imported."""
    code = (
        "import sys\n"
        "from trainingkit.cli import main\n"
        f"try:\n    main({[*words, '--help']!r})\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    wall_s, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    busy = os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2
    return cpu_s if busy else wall_s, ended.stdout, ended.stderr.strip()


def test_commands_are_in_the_order_of_use(command: Command) -> None:
    shown = command("--help").stdout
    order = ("train", "resume", "recover", "eval", "export", "report")
    order += ("data", "advise", "plan", "probe", "netlab", "bench")
    places = [shown.index(f"│ {name} ") for name in order]
    assert places == sorted(places)
    assert {words[0] for words in COMMANDS[1:]} == set(order)
    assert ["bench", "network"] in COMMANDS and ["data", "build"] in COMMANDS


def test_version(command: Command) -> None:
    assert command("--version").stdout.strip() == trainingkit.__version__


def test_completion_for_bash(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    environment.pop("XDG_DATA_HOME", None)
    program = Path(sys.executable).with_name("trainingkit")
    ended = subprocess.run(
        [program, "--install-completion", "--shell", "bash"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    scripts = [path for path in tmp_path.rglob("*") if path.is_file() and "trainingkit" in path.read_text()]
    script = next(path for path in scripts if "complete " in path.read_text())
    checked = subprocess.run(["bash", "-n", script], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    for word in ("train", "resume", "--workers", "--dry-run"):
        assert word in script.read_text()


def test_a_dry_run_prints_the_recipe_and_starts_nothing(command: Command, tmp_path: Path) -> None:
    words = ("--workers", "3", "--set", "optimizer.lr=0.01", "--set", "step.clip_norm=0")
    ended = command("train", TINY, *words, "--dry-run")
    assert ended.code == 0, ended.stderr
    assert "Nothing was started" in ended.stdout
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "shown.toml").write_text(ended.stdout)
    table = tomllib.loads(ended.stdout)
    assert (table["workers"], table["optimizer"]["lr"]) == (3, 0.01)
    given = load_recipe(str(TINY), ["workers=3", "optimizer.lr=0.01", "step.clip_norm=0"])
    again = load_recipe("shown.toml")
    for section in ("run", "step", "batch", "eval", "snapshot", "sync", "precision", "workers", "name"):
        assert getattr(again, section) == getattr(given, section)
    for section in ("model_section", "data_section", "optimizer_section", "schedule_section"):
        assert getattr(again, section)() == getattr(given, section)()
    again_shown = command("train", "shown.toml", "--dry-run").stdout
    assert [line for line in again_shown.splitlines() if line[:1] != "#"] == [
        line for line in ended.stdout.splitlines() if line[:1] != "#"
    ]
