"""What a quantiser is: a number format of the kernels, and how many bytes it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from trainingkit.core.registry import Registry
from trainingkit.core.section import Section


class Quantiser(Section, ABC):
    """Settings of a quantiser, and its arithmetic.

    Attributes:
        number_format: the kernels' name of the number format, or of the family that a setting chooses from.
        bits: bits of one value, without scales.
        exact: whether y minus what is said of it is always an fp32 number. If not, the residual is the nearest one.
    """

    number_format: ClassVar[str]
    bits: ClassVar[int]
    exact: ClassVar[bool] = True

    def kernel_format(self) -> str:
        """The kernels' name of the number format with these settings."""
        return self.number_format

    @abstractmethod
    def scale_block(self) -> int:
        """Values that share a scale; 1 without scales."""

    @abstractmethod
    def value_bytes(self, n: int) -> int:
        """Bytes of `n` values of one row, scales included."""


QUANTISERS: Registry[type[Quantiser]] = Registry("quantiser", "trainingkit.codec.quantisers")
