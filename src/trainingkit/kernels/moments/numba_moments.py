"""The `numba` moment kernel: one pass over memory each, without the GIL and on one thread."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainingkit.kernels.moments.base import MOMENT_KERNELS

if TYPE_CHECKING:
    from torch import Tensor


@MOMENT_KERNELS.register("numba")
class NumbaMoments:
    """Compiled loops."""

    speed = 10

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run here, or None."""
        return None if importlib.util.find_spec("numba") else "numba is not installed"

    @staticmethod
    def follow(mean: Tensor, square: Tensor, share: float) -> float:
        """See `MomentKernel.follow`."""
        import numpy as np

        from trainingkit.kernels.compiled.moment import TILE

        if not mean.numel():
            return 0.0
        roots, sums = np.empty(TILE, np.float32), np.empty(-(-mean.numel() // TILE), np.float32)
        return float(_compiled("follow")(mean.numpy(), square.numpy(), np.float32(share), roots, sums))

    @staticmethod
    def settle(square: Tensor, floor: float, unit: Tensor, residuals: tuple[Tensor, ...]) -> None:
        """See `MomentKernel.settle`."""
        import numpy as np

        arrays = [residual.numpy() for residual in residuals] + [np.empty(0, np.float32)]
        _compiled("settle")(square.numpy(), np.float32(floor), unit.numpy(), *arrays[:2])


@functools.cache
def _compiled(name: str) -> Callable[..., Any]:
    from trainingkit.kernels.compiled import moment
    from trainingkit.kernels.compiled.options import driver

    return driver(getattr(moment, name), "moment")
