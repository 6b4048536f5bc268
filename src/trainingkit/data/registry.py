"""The registry of data sources: a new kind of data is a new file in `trainingkit.data.sources`."""

from __future__ import annotations

from typing import Protocol

from trainingkit.core.registry import Registry
from trainingkit.data.contract import Corpus


class DataSection(Protocol):
    """A recipe's [data] table, checked: a `core.section.Section` with `open`."""

    def open(self) -> Corpus:
        """Find, check and open the data. Raises DataError."""
        ...


SOURCES: Registry[type[DataSection]] = Registry("data source", "trainingkit.data.sources")
