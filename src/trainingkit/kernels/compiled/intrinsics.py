"""Two processor instructions that Numba has no name for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic


@intrinsic
def trailing_zeros(typing_context: Any, value: Any) -> Any:
    """Index of the lowest set bit of a uint64; 64 for zero."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), emit


@intrinsic
def set_bits(typing_context: Any, value: Any) -> Any:
    """Number of set bits of a uint64."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), emit
