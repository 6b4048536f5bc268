"""A folder that Hugging Face `datasets` saved with `save_to_disk`: its two sides, columns and digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainingkit.core.errors import DataError
from trainingkit.core.nearest import nearest
from trainingkit.data import split
from trainingkit.data.files import DataFile, missing

TRAIN_NAME = "train"
VALIDATION_NAMES = ("validation", "valid", "val", "test")
SAVED = "a folder that datasets' save_to_disk wrote"


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of one saved table. table: a datasets.Dataset; rows: [r] int64."""

    table: Any
    rows: np.ndarray


def open_saved(path: str, share: float) -> tuple[Part, Part, tuple[str, ...]]:
    """(train, validation, notes). Without a validation split, a fixed random share of train is held out.

    Raises:
        DataError: the package is missing, nothing is there, it was not saved by `datasets`, or has no train split.
    """
    loaded = _load(path)
    if not isinstance(loaded, dict):
        train, validation = split.rows(len(loaded), share)
        return Part(loaded, train), Part(loaded, validation), ("Validation is a fixed random share of the rows.",)
    if TRAIN_NAME not in loaded:
        raise _unusable(f"splits {', '.join(loaded)} in {path}", f"a split called {TRAIN_NAME!r}")
    train = loaded[TRAIN_NAME]
    held = next((name for name in VALIDATION_NAMES if name in loaded), None)
    unread = sorted(set(loaded) - {TRAIN_NAME, held})
    notes = (f"Splits that were not read: {', '.join(unread)}.",) if unread else ()
    if held:
        validation = loaded[held]
        return Part(train, np.arange(len(train))), Part(validation, np.arange(len(validation))), notes
    own, rest = split.rows(len(train), share)
    return Part(train, own), Part(train, rest), (*notes, "Validation is a fixed random share of the rows of train.")


def arrow_files(path: str) -> list[DataFile]:
    """The saved tables themselves, by name; caches are left out."""
    root = Path(path).expanduser()
    found = sorted(root.rglob("data-*.arrow"))
    return [DataFile(each.relative_to(root).as_posix(), each, each.stat().st_size) for each in found]


def column(part: Part, name: str, field: str, fits: Callable[[Any], bool], expected: str) -> Any:
    """The Arrow column `name` of a part's table, of a type that `fits`.

    Raises:
        DataError: there is none (the nearest name is given), or it holds something else.
    """
    require_column(part, name, field)
    values = part.table.data.column(name)
    if not fits(values.type):
        raise DataError(
            f"The column {name!r} holds something else.",
            field=field,
            found=str(values.type),
            expected=expected,
            next_step="Name another column.",
        )
    return values


def require_column(part: Part, name: str, field: str) -> None:
    """Raise a DataError where the table has no column `name`."""
    names = part.table.column_names
    if name not in names:
        close = nearest(name, names)
        raise DataError(
            f"There is no column {name!r}.",
            field=field,
            found=repr(name),
            expected="one of " + ", ".join(names),
            next_step=f"Did you mean {close!r}?" if close else "Name a column of the data set.",
        )


def _load(path: str) -> Any:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise missing(path, "data.path", SAVED)
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise DataError(
            "This kind of data needs the package datasets, which is not installed.",
            field="data.kind",
            found=str(error),
            expected="the package datasets",
            next_step="Run: pip install 'trainingkit[datasets]'",
        ) from error
    try:
        return load_from_disk(str(folder))
    except Exception as error:
        raise _unusable(f"{path}: {type(error).__name__}: {error}", SAVED) from error


def _unusable(found: str, expected: str) -> DataError:
    return DataError(
        "This data set cannot be opened.",
        field="data.path",
        found=found,
        expected=expected,
        next_step="Save it again with dataset.save_to_disk(path).",
    )
