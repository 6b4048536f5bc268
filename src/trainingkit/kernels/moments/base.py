"""What a moment kernel is, the registry of them, and the choice between them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from trainingkit.core.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor


class MomentKernel(Protocol):
    """Passes over the elements of one parameter. Tensors are [elements] fp32, contiguous, on the CPU.

    Every operation is one that IEEE 754 rounds in one way only, and the sum has an order of its own (`follow`), so that
    the result depends neither on the kernel nor on the processor or the number of threads.

    Attributes:
        speed: rough speed against the others; the highest that can run is taken.
    """

    speed: int

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run on this machine, or None."""
        ...

    @staticmethod
    def follow(mean: Tensor, square: Tensor, share: float) -> float:
        """mean = (mean**2 - square) * share + square.

        Args:
            mean: the agreed mean, overwritten with the second moment that follows.
            square: the second moment before. Not modified.
            share: of the new square, rounded to fp32.

        Returns:
            The sum of what `mean` now holds the squares of, in fp32: roots in tiles of 1024, with zeros at the end; in
            each tile the upper half is added to the lower one until one is left; then so are the tiles' sums, where
            the last of an odd number is added to the first.
        """
        ...

    @staticmethod
    def settle(square: Tensor, floor: float, unit: Tensor, residuals: tuple[Tensor, ...]) -> None:
        """following = max(sqrt(square), floor); residuals *= unit / following; unit = following.

        Args:
            square: not modified.
            floor: above zero, rounded to fp32.
            unit: overwritten.
            residuals: one or two, overwritten.
        """
        ...


MOMENT_KERNELS: Registry[type[MomentKernel]] = Registry("moment kernel", "trainingkit.kernels.moments")


@functools.cache
def fastest() -> type[MomentKernel]:
    """The fastest that can run here; the torch reference always can."""
    kernels = [MOMENT_KERNELS.get(name) for name in MOMENT_KERNELS.names()]
    return max((kernel for kernel in kernels if kernel.missing() is None), key=lambda kernel: kernel.speed)


def warm() -> None:
    """Run the kernel that `fastest` gives once on zeros, so that it is compiled. Rank 0 first, as for the codecs."""
    import torch

    kernel, zeros = fastest(), torch.zeros(1)
    kernel.follow(zeros, torch.zeros(1), 1.0)
    kernel.settle(zeros, 1.0, torch.ones(1), (torch.zeros(1),))
