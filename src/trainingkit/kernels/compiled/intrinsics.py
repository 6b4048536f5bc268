"""Operations that processors have and Numba has no name for; LLVM finds the instructions on each processor."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic
LANES = ir.VectorType(ir.IntType(64), 8)
BYTES = ir.VectorType(ir.IntType(8), 64)


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


def join_64(width: int) -> Any:
    """The operation `(codes, start, target, at)`: 64 codes of `width` bits, one a byte, as 8 * width bytes.

    The eight codes of a 64-bit lane move together in three steps: pairs, fours, eights.
    """
    kept = [8 * lane + part for lane in range(8) for part in range(width)]

    @intrinsic
    def join(typing_context: Any, codes: Any, start: Any, target: Any, at: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = builder.load(_address(context, builder, signature, arguments, 0, 1, LANES), align=1)
            for room in () if width == 8 else (8, 16, 32):
                used = width * room // 8
                nearer = builder.lshr(builder.and_(lanes, _bits_from(room, used, 2 * room)), _each(room - used))
                lanes = builder.or_(builder.and_(lanes, _bits_from(0, used, 2 * room)), nearer)
            joined = _chosen(builder, builder.bitcast(lanes, BYTES), kept)
            place = _address(context, builder, signature, arguments, 2, 3, joined.type)
            builder.store(joined, place, align=1)
            return context.get_dummy_value()

        return types.void(codes, types.intp, target, types.intp), emit

    return join


def spread_64(width: int) -> Any:
    """The operation `(source, at, codes, start)`: the inverse of `join_64`. Reads 8 * width bytes."""
    places = [8 * width] * 64
    for lane in range(8):
        places[8 * lane : 8 * lane + width] = range(lane * width, (lane + 1) * width)

    @intrinsic
    def spread(typing_context: Any, source: Any, at: Any, codes: Any, start: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8), 8 * width)
            packed = builder.load(_address(context, builder, signature, arguments, 0, 1, kind), align=1)
            lanes = builder.bitcast(_chosen(builder, packed, places), LANES)
            for room in () if width == 8 else (32, 16, 8):
                used = width * room // 8
                farther = builder.and_(builder.shl(lanes, _each(room - used)), _bits_from(room, used, 2 * room))
                lanes = builder.or_(builder.and_(lanes, _bits_from(0, used, 2 * room)), farther)
            place = _address(context, builder, signature, arguments, 2, 3, LANES)
            builder.store(lanes, place, align=1)
            return context.get_dummy_value()

        return types.void(source, types.intp, codes, types.intp), emit

    return spread


def _loader(n_bytes: int, kind: Any) -> Any:
    @intrinsic
    def load(typing_context: Any, source: Any, at: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(context, builder, signature, arguments, 0, 1, ir.IntType(8 * n_bytes))
            number = builder.load(address, align=1)
            return builder.zext(number, ir.IntType(kind.bitwidth))

        return kind(source, types.intp), emit

    return load


def _storer(n_bytes: int, kind: Any) -> Any:
    @intrinsic
    def store(typing_context: Any, target: Any, at: Any, number: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            low = builder.trunc(arguments[2], ir.IntType(8 * n_bytes))
            builder.store(low, _address(context, builder, signature, arguments, 0, 1, low.type), align=1)
            return context.get_dummy_value()

        return types.void(target, types.intp, kind), emit

    return store


load_2, load_4, load_8 = _loader(2, types.int32), _loader(4, types.int32), _loader(8, types.uint64)
"""source[at : at + n] as one little-endian number, int32 or uint64."""
store_2, store_4, store_8 = _storer(2, types.int32), _storer(4, types.int32), _storer(8, types.uint64)
"""target[at : at + n] = the low bytes of a number, the lowest first."""


@intrinsic
def bits_of(typing_context: Any, number: Any) -> Any:
    """The bits of a float32 as an int32."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), emit


@intrinsic
def float_of(typing_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


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


def _each(number: int) -> Any:
    return ir.Constant(LANES, [number] * 8)


def _bits_from(first: int, count: int, period: int) -> Any:
    """A mask of `count` bits from `first` on in every `period` bits of the lanes."""
    return _each(sum(((1 << count) - 1) << start for start in range(first, 64, period)))


def _chosen(builder: Any, source: Any, places: list[int]) -> Any:
    """The bytes of a vector at these places; a place at its length is a zero."""
    zeros = ir.Constant(source.type, [0] * source.type.count)
    order = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
    return builder.shuffle_vector(source, zeros, order)
