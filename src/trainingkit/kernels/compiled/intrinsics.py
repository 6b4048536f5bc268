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
def add_64(typing_context: Any, x: Any, residual: Any, y: Any, start: Any) -> Any:
    """y = x + residual for 64 values from `start` on (fp32). Returns the largest magnitude, as an integer."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        floats = ir.VectorType(ir.FloatType(), 64)
        one, other, place = (_address(context, builder, signature, arguments, k, 3, floats) for k in range(3))
        total = builder.fadd(builder.load(one, align=4), builder.load(other, align=4))
        builder.store(total, place, align=4)
        return _largest(builder, total)

    return types.int32(x, residual, y, types.intp), emit


@intrinsic
def copy_64(typing_context: Any, x: Any, y: Any, start: Any) -> Any:
    """y = x for 64 values from `start` on (fp32). Returns the largest magnitude, as an integer."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        floats = ir.VectorType(ir.FloatType(), 64)
        source, place = (_address(context, builder, signature, arguments, k, 2, floats) for k in range(2))
        values = builder.load(source, align=4)
        builder.store(values, place, align=4)
        return _largest(builder, values)

    return types.int32(x, y, types.intp), emit


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]` in the second cache level; harmless beyond the end."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments, 0, 1, ir.IntType(8))
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(ask, [address, number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def join_halves_64(typing_context: Any, codes: Any, start: Any, target: Any, at: Any) -> Any:
    """32 bytes from 64 codes of 4 bits, one a byte: the first of each pair in the low half."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs, joined = ir.VectorType(ir.IntType(16), 32), ir.VectorType(ir.IntType(8), 32)
        value = builder.load(_address(context, builder, signature, arguments, 0, 1, pairs), align=1)
        value = builder.or_(value, builder.lshr(value, ir.Constant(pairs, [4] * 32)))
        place = _address(context, builder, signature, arguments, 2, 3, joined)
        builder.store(builder.trunc(value, joined), place, align=1)
        return context.get_dummy_value()

    return types.void(codes, types.intp, target, types.intp), emit


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


def _largest(builder: Any, values: Any) -> Any:
    integers = ir.VectorType(ir.IntType(32), 64)
    magnitudes = builder.and_(builder.bitcast(values, integers), ir.Constant(integers, [0x7FFFFFFF] * 64))
    kind = ir.FunctionType(ir.IntType(32), [integers])
    largest = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.smax.v64i32")
    return builder.call(largest, [magnitudes])
