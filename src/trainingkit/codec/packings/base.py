"""What an index packing is: how many bytes ascending indices take."""

from __future__ import annotations

from abc import ABC, abstractmethod

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section


class Packing(Section, ABC):
    """Settings of a packing, and its arithmetic. The loops are in `trainingkit.kernels`, under the same name."""

    @abstractmethod
    def index_bits(self, count: int, index_range: int) -> int:
        """Bits of the part of an index that is written as a number, for `count` indices below `index_range`."""

    @abstractmethod
    def index_bytes(self, count: int, index_range: int) -> int:
        """Bytes of the `count` indices of one row."""


PACKINGS: Registry[type[Packing]] = Registry("index packing", "trainingkit.codec.packings")


def smallest(count: int, index_range: int) -> str:
    """The packing, without settings, that takes the fewest bytes for `count` indices below `index_range`.

    Among equals the first by name.
    """
    return min(PACKINGS.names(), key=lambda name: PACKINGS.get(name)().index_bytes(count, index_range))
