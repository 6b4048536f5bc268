"""What an index packing is: how many bytes ascending indices take."""

from __future__ import annotations

from abc import ABC, abstractmethod

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section


class Packing(Section, ABC):
    """Settings of a packing, and its arithmetic. The loops are in `trainingkit.kernels`, under the same name."""

    @abstractmethod
    def index_bits(self, index_range: int) -> int:
        """Bits of one index below `index_range`."""

    @abstractmethod
    def index_bytes(self, count: int, index_range: int) -> int:
        """Bytes of the `count` indices of one row."""


PACKINGS: Registry[type[Packing]] = Registry("index packing", "trainingkit.codec.packings")
