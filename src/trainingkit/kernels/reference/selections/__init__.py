"""Which values of a row are sent? One file per selection: `(y: [rows, width] fp32, keep) -> [rows, keep] int64`,
ascending indices.
"""

from collections.abc import Callable

from torch import Tensor

from trainingkit.core.registry import Registry

SELECTIONS: Registry[Callable[[Tensor, int], Tensor]] = Registry(
    "reference selection", "trainingkit.kernels.reference.selections"
)

__all__ = ["SELECTIONS"]
