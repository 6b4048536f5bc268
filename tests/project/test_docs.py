"""Pages do not lie: links lead somewhere, commands exist, examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranks.cli import run_cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
SOURCES = sorted((ROOT / "src").rglob("*.py"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_WORD = re.compile(r"[a-z][a-z-]*")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _shell_lines(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, as words. In a `console` block only lines after `$` are commands."""
    for language, block in _FENCE.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if language in ("bash", "sh") or (language == "console" and line.startswith("$ ")):
                yield shlex.split(line.removeprefix("$ "), comments=True)


def _after(tool: str) -> list[tuple[str, list[str]]]:
    """(page, words after `tool`) wherever a page runs it."""
    found = []
    for page in PAGES:
        for words in _shell_lines(page):
            places = [place for place, word in enumerate(words) if word.rpartition("/")[2] == tool]
            found += [(_name(page), words[place + 1 :]) for place in places]
    return found


def _slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as repository hosts make them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_resolve(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in _slugs(path)):
            broken.append(link)
    assert broken == []


def _lead(words: list[str]) -> tuple[str, ...]:
    """The leading plain words: the command, and its sub-command or first argument."""
    count = next((i for i, word in enumerate(words) if not _WORD.fullmatch(word)), len(words))
    return tuple(words[: min(count, 2)])


def test_commands_and_options_on_pages_exist(tmp_path: Path) -> None:
    commands = _after("trainingkit")
    assert "train" in {words[0] for _, words in commands if words}
    helps: dict[tuple[str, ...], str] = {}
    for page, words in commands:
        lead = _lead(words)
        if lead not in helps:
            done = run_cli([*lead, "--help"], cwd=tmp_path, deadline_s=30)
            assert done.code == 0, f"{page}: trainingkit {shlex.join(words)}\n{done.stdout}{done.stderr}"
            helps[lead] = " ".join(done.stdout.split())
        assert " ".join(["trainingkit", *lead[:1]]) in helps[lead], f"{page}: trainingkit {shlex.join(words)}"
        options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help", "--version"}
        unknown = {option for option in options if option not in helps[lead]}
        assert not unknown, f"{page}: trainingkit {shlex.join(words)}"


def test_make_targets_on_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {words[0] for _, words in _after("make") if words}
    assert used
    assert used <= targets


def test_examples_in_docstrings() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for path in SOURCES:
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
            for case in finder.find(importlib.import_module(name)):
                runner.run(case)
    assert runner.summarize(verbose=False).failed == 0
