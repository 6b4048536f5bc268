"""What a selection is: rows of values, and how many of each row are sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section


@dataclass(frozen=True)
class Rows:
    """`count` rows of `width` values each, `keep` of which are sent."""

    count: int
    width: int
    keep: int


class Selection(Section, ABC):
    """Settings of a selection, and its arithmetic. The loops are in `trainingkit.kernels`, under the same name.

    Attributes:
        indexed: whether the message says which values were sent.
    """

    indexed: ClassVar[bool]

    @abstractmethod
    def rows(self, n: int) -> list[Rows]:
        """How `n` values are cut, in order: at most one run of whole rows and one shorter row."""

    @abstractmethod
    def granule(self, block: int) -> int:
        """A tensor cut at multiples of this has the messages of its parts in a row as its message.

        Args:
            block: values that share a scale.
        """

    @abstractmethod
    def index_range(self) -> int:
        """Indices are below this; 1 where none are sent."""


SELECTIONS: Registry[type[Selection]] = Registry("selection", "trainingkit.codec.selections")
