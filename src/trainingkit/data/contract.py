"""What a data source must offer: random access by index, two sides, and facts about both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from trainingkit.core.datainfo import DataInfo


@runtime_checkable
class Source(Protocol):
    """Samples by number. `sample` is called from several threads at once and gives the same for the same index."""

    def __len__(self) -> int:
        """How many samples there are; constant."""
        ...

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """Sample `index`, 0 <= index < len. All samples have the same names, dtypes and shapes."""
        ...


@dataclass(frozen=True)
class Corpus:
    """Both sides of a data set. No sample of `validation` shares content with `train`.

    Args:
        train: what is learned from.
        validation: what is measured on.
        info: facts for the model and for the page.
    """

    train: Source
    validation: Source
    info: DataInfo
