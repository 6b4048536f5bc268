"""The `torch` moment kernel: one tensor operation after the other. It is the oracle, and always there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainingkit.kernels.moments.base import MOMENT_KERNELS

if TYPE_CHECKING:
    from torch import Tensor


@MOMENT_KERNELS.register("torch")
class TorchMoments:
    """The reference."""

    speed = 1

    @staticmethod
    def missing() -> str | None:
        """Nothing is missing: torch is required."""
        return None

    @staticmethod
    def follow(mean: Tensor, square: Tensor, share: float) -> float:
        """See `MomentKernel.follow`."""
        from trainingkit.kernels.reference.moment import sum_of_roots

        mean.mul_(mean).sub_(square).mul_(share).add_(square)
        return sum_of_roots(mean)

    @staticmethod
    def settle(square: Tensor, floor: float, unit: Tensor, residuals: tuple[Tensor, ...]) -> None:
        """See `MomentKernel.settle`."""
        from trainingkit.kernels.reference.moment import roots_of

        following = roots_of(square).clamp_min_(floor)
        unit.div_(following)
        for residual in residuals:
            residual.mul_(unit)
        unit.copy_(following)
