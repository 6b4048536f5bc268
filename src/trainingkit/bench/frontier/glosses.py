"""The glosses of WordNet as a text classification: what is defined belongs to one of 45 lexicographer files.

WordNet 3.0 (Fellbaum, 1998; file format: wndb(5WN)): in data.{noun,verb,adj,adv} a line is a synset, its second field
the number 00 ... 44 of its file ("noun.animal", "verb.motion" ...), and its gloss follows the bar. Examples, which are
in quotes, are cut off. A definition that occurs more than once is kept once; with different classes, not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import DataError

PARTS = ("data.adj", "data.adv", "data.noun", "data.verb")
CLASSES = 45


@dataclass(frozen=True)
class Gloss:
    """A definition and the number of its lexicographer file."""

    text: str
    label: int


def read_glosses(folder: Path) -> list[Gloss]:
    """All glosses, ordered by the SHA-256 of their text: the first n of them are a held-out part that never changes.

    Raises:
        DataError: a file is missing or is not WordNet's.
    """
    labels: dict[str, set[int]] = {}
    for part in PARTS:
        for gloss in _lines(folder / part):
            labels.setdefault(gloss.text, set()).add(gloss.label)
    single = [Gloss(text, next(iter(found))) for text, found in labels.items() if len(found) == 1]
    return sorted(single, key=lambda gloss: hashlib.sha256(gloss.text.encode()).digest())


def _lines(path: Path) -> Iterator[Gloss]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _not_wordnet(path, str(error)) from error
    for number, line in enumerate(lines, start=1):
        if line.startswith("  "):
            continue
        head, bar, gloss = line.partition(" | ")
        fields = head.split()
        label = int(fields[1]) if bar and len(fields) > 2 and fields[1].isdecimal() else CLASSES
        if label >= CLASSES:
            raise _not_wordnet(path, f"line {number}: {line[:60]!r}")
        text = gloss.split('; "')[0].strip()
        if text:
            yield Gloss(text, label)


def _not_wordnet(path: Path, what: str) -> DataError:
    return DataError(
        "This is not a WordNet data file.",
        field="--tasks",
        found=f"{path}: {what}",
        expected="lines of the form 'offset file type words pointers | gloss'",
        next_step="Remove the folder, so that the package is unpacked again.",
    )
