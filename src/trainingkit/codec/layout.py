"""Where each part of a message is: a spec and a length become runs of equal rows, each with its range of bytes."""

from __future__ import annotations

import functools
from typing import NamedTuple

from trainingkit.codec.selections import Rows
from trainingkit.codec.spec import Spec
from trainingkit.kernels.rowplan import RowPlan


class Run(NamedTuple):
    """Equal rows in a row: values `start` to `stop`, message bytes `first_byte` to `end_byte`."""

    plan: RowPlan
    start: int
    stop: int
    first_byte: int
    end_byte: int


@functools.lru_cache(maxsize=4096)
def runs(spec: Spec, n: int) -> tuple[Run, ...]:
    """The runs of a tensor of `n` values: none when it is empty, at most two."""
    found: list[Run] = []
    start = first_byte = 0
    for rows in spec.selection.rows(n):
        plan = row_plan(spec, rows)
        stop = start + rows.count * rows.width
        end_byte = first_byte + rows.count * plan.row_bytes
        found.append(Run(plan, start, stop, first_byte, end_byte))
        start, first_byte = stop, end_byte
    assert start == n, "a selection must cut all values into rows"
    return tuple(found)


def row_plan(spec: Spec, rows: Rows) -> RowPlan:
    """The numbers that a kernel needs for such rows."""
    quantiser, packing = spec.quantiser, spec.packing
    block, index_range = quantiser.scale_block(), spec.selection.index_range()
    return RowPlan(
        selection=spec.names[0],
        width=rows.width,
        keep=rows.keep,
        format=quantiser.kernel_format(),
        bits=quantiser.bits,
        block=block,
        block_bytes=quantiser.value_bytes(block),
        value_bytes=quantiser.value_bytes(rows.keep),
        packing=spec.names[2] if packing else "",
        index_bits=packing.index_bits(rows.keep, index_range) if packing else 0,
        index_bytes=packing.index_bytes(rows.keep, index_range) if packing else 0,
    )
