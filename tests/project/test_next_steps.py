"""Every error that a person sees says what to do next: no place in the code makes one without."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from trainingkit.core import errors

SOURCE = Path(__file__).parents[2] / "src" / "trainingkit"
ROOMS = (
    "api.py",
    "bench",
    "cli",
    "cluster",
    "core",
    "data",
    "models",
    "netlab",
    "planner",
    "recovery",
    "report",
    "sync",
    "trainer",
)
FAMILY = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}


def silent(text: str) -> list[int]:
    """Lines that call an error of the family without `next_step`, or with None or a text that is None at times."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FAMILY:
            given = {word.arg: word.value for word in node.keywords}
            whole = None in given or ("next_step" in given and not _may_be_none(given["next_step"]))
            found += [] if whole else [node.lineno]
    return found


def _may_be_none(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _may_be_none(value.body) or _may_be_none(value.orelse)
    return isinstance(value, ast.Constant) and value.value is None


def test_the_search_finds_what_it_should() -> None:
    assert silent('raise ConfigError("no", field="x")') == [1]
    assert silent('raise ClusterError("no", next_step="go" if x else None)') == [1]
    assert silent('raise ClusterError("no", next_step="go")\nValueError("no")\nConfigError("no", **rest)') == []


@pytest.mark.parametrize("room", ROOMS)
def test_all_errors_say_what_to_do_next(room: str) -> None:
    place = SOURCE / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    found = {str(path.relative_to(SOURCE)): lines for path in files if (lines := silent(path.read_text()))}
    assert found == {}
