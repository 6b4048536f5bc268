"""The rows of a file of measured runs: what was run, what was measured, and why a row cannot be used."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import DataError

NEEDED = ("source", "model", "gpu", "n_gpus", "seq_len", "global_batch", "step_time_s")
LAYOUT_COLUMNS = (
    *("source", "model", "layers", "hidden", "heads", "seq_len", "gpu", "n_gpus", "tp", "pp", "dp", "cp", "ep"),
    *("zero_or_fsdp", "virtual_pp", "micro_batch", "global_batch", "precision", "recompute", "schedule"),
)
"""Columns in which repeats are alike."""


@dataclass(frozen=True)
class Row:
    """One measured run. Empty cells are missing; numbers are read where they are asked for."""

    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """A cell's text; empty when it is missing."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """A cell's number, or None."""
        try:
            value = float(self.text(column))
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    def whole(self, column: str) -> int | None:
        """A cell's whole number, or None."""
        value = self.number(column)
        return None if value is None or value != int(value) else int(value)

    @property
    def name(self) -> str:
        """Its id."""
        return self.text("id")

    @property
    def source(self) -> str:
        """Who published it."""
        return self.text("source")

    @property
    def key(self) -> tuple[str, ...]:
        """What repeats have in common."""
        return tuple(self.text(column) for column in LAYOUT_COLUMNS)

    @property
    def step_s(self) -> float | None:
        """Measured seconds of a step, also from tokens or samples a second where the batch is known."""
        direct = self.number("step_time_s")
        if direct is not None:
            return direct if direct > 0 else None
        batch, devices = self.number("global_batch"), self.number("n_gpus")
        tokens, samples, seq = (self.number(c) for c in ("tokens_per_s_per_gpu", "samples_per_s_per_gpu", "seq_len"))
        if batch and devices and tokens and seq:
            return batch * seq / (tokens * devices)
        return batch / (samples * devices) if batch and devices and samples else None


def read_rows(path: Path) -> list[Row]:
    """All rows of a CSV file.

    Raises:
        DataError: not readable, no rows, or columns missing.
    """
    try:
        with open(path, newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            rows = [Row({k: v for k, v in line.items() if k}) for line in reader]
            columns = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            "The file of measured runs cannot be read.",
            field="FILE",
            found=f"{path}: {error}",
            expected="a CSV file with the columns of published_runs.csv",
            next_step="Choose another file.",
        ) from error
    missing = [column for column in NEEDED if column not in columns]
    if missing or not rows:
        raise DataError(
            "The file has no rows." if not missing else "The file lacks columns.",
            field="FILE",
            found=f"{path}: no " + (", ".join(missing) if missing else "rows"),
            expected="the columns of published_runs.csv, at least " + ", ".join(NEEDED),
            next_step="Add them; a value that is not known may be empty.",
        )
    return rows
