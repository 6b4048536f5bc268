# ruff: noqa: PLR0917 - Numba's way of handing over a call
"""Operations that processors have and Numba has no name for; LLVM finds the instructions on each processor."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
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


@intrinsic
def reaching_mask(typing_context: Any, bits: Any, start: Any, threshold: Any) -> Any:
    """uint64 whose bit j says that the magnitude of `bits[start + j]` (int32) is >= `threshold`. Reads 64 values."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(32), 64)
        values = builder.load(_address(context, builder, signature, arguments, 0, 1, lanes), align=4)
        magnitudes = builder.and_(values, ir.Constant(lanes, [0x7FFFFFFF] * 64))
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[2], ir.IntType(32)(0))
        many = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64))
        return builder.bitcast(builder.icmp_signed(">=", magnitudes, many), ir.IntType(64))

    return types.uint64(bits, types.intp, types.int32), emit


@intrinsic
def largest_of_64(typing_context: Any, bits: Any, start: Any) -> Any:
    """The largest magnitude of `bits[start : start + 64]` (int32)."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(32), 64)
        values = builder.load(_address(context, builder, signature, arguments, 0, 1, lanes), align=4)
        magnitudes = builder.and_(values, ir.Constant(lanes, [0x7FFFFFFF] * 64))
        kind = ir.FunctionType(ir.IntType(32), [lanes])
        reduce = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.smax.v64i32")
        return builder.call(reduce, [magnitudes])

    return types.int32(bits, types.intp), emit


@intrinsic
def move_16(typing_context: Any, target: Any, at: Any, source: Any, origin: Any) -> Any:
    """target[at : at + 16] = source[origin : origin + 16], for bytes that do not overlap."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(8), 16)
        value = builder.load(_address(context, builder, signature, arguments, 2, 3, lanes), align=1)
        builder.store(value, _address(context, builder, signature, arguments, 0, 1, lanes), align=1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), emit


def _address(context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: int, kind: Any) -> Any:
    data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
    return builder.bitcast(builder.gep(data, [arguments[index]]), kind.as_pointer())
