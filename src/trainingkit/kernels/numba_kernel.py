"""The `numba` kernel: compiled on first use, several times the reference's speed, the same bits. CPU, little-endian."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainingkit.kernels.kernel import KERNELS
from trainingkit.kernels.rowplan import RowPlan

if TYPE_CHECKING:
    from torch import Tensor


@KERNELS.register("numba")
class NumbaKernel:
    """Compiled loops without the GIL and without threads of their own: callers slice the work."""

    speed = 10

    @staticmethod
    def missing() -> str | None:
        """Why this kernel cannot run here, or None."""
        if importlib.util.find_spec("numba") is None:
            return "numba is not installed"
        return None if sys.byteorder == "little" else "this processor is big-endian"

    @staticmethod
    def devices() -> tuple[str, ...]:
        """See `Kernel.devices`."""
        return ("cpu",)

    @staticmethod
    def supports(plan: RowPlan) -> bool:
        """Whether there are compiled forms of the plan's selection, format and packing."""
        from trainingkit.kernels.compiled.formats import FORMATS
        from trainingkit.kernels.compiled.packings import PACKINGS
        from trainingkit.kernels.compiled.selections import SELECTIONS

        known = _format_name(plan) in FORMATS.names() and plan.selection in SELECTIONS.names()
        return known and (not plan.packing or plan.packing in PACKINGS.names())

    @staticmethod
    def encode(plan: RowPlan, x: Tensor, residual: Tensor | None, message: Tensor, new_residual: Tensor | None) -> bool:
        """See `Kernel.encode`."""
        arrays = (_array(x), _array(residual), _array(message), _array(new_residual))
        encode, _ = _compiled(plan.selection, _format_name(plan), plan.packing)
        return bool(encode(*arrays, *_rest(plan)))

    @staticmethod
    def decode(plan: RowPlan, message: Tensor, out: Tensor, weight: float, accumulate: bool) -> bool:
        """See `Kernel.decode`."""
        import numpy as np

        _, decode = _compiled(plan.selection, _format_name(plan), plan.packing)
        return bool(decode(_array(message), _array(out), np.float32(weight), accumulate, *_rest(plan)))


def _array(tensor: Tensor | None) -> Any:
    from trainingkit.kernels.compiled.selections.base import NOTHING

    return NOTHING if tensor is None else tensor.detach().numpy()


def _format_name(plan: RowPlan) -> str:
    return f"linear{plan.bits}" if plan.format == "linear" else plan.format


def _rest(plan: RowPlan) -> tuple[Any, ...]:
    from trainingkit.kernels.compiled.formats import FORMATS
    from trainingkit.kernels.compiled.selections import SELECTIONS

    selection = SELECTIONS.get(plan.selection)
    memory = FORMATS.get(_format_name(plan)).scratch(selection.capacity(plan), plan.block)
    return memory, selection.scratch(plan), *selection.numbers(plan)


@functools.cache
def _compiled(selection: str, number_format: str, packing: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    from trainingkit.kernels.compiled.formats import FORMATS
    from trainingkit.kernels.compiled.options import driver
    from trainingkit.kernels.compiled.packings import PACKINGS
    from trainingkit.kernels.compiled.selections import SELECTIONS

    entry, chosen = SELECTIONS.get(selection), FORMATS.get(number_format)
    names = {"FORMAT_ENCODE": chosen.encode, "FORMAT_DECODE": chosen.decode}
    if packing:
        names |= {"PACK": PACKINGS.get(packing).pack, "UNPACK": PACKINGS.get(packing).unpack}
    tag = f"{number_format}_{packing}" if packing else number_format
    return driver(entry.encode, tag, **names), driver(entry.decode, tag, **names)
