"""What a kernel is told: a codec reduced to plain numbers, for rows of one width. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowPlan:
    """How each row of `width` values becomes `row_bytes` bytes: packed indices (if any), then coded values.

    Args:
        selection: name of the selection, for example "topk".
        width: values in a row.
        keep: values of a row that are sent.
        format: name of the number format, for example "linear".
        bits: bits of one coded value.
        block: values that share a scale; 1 for formats without scales.
        block_bytes: bytes of one whole block of coded values.
        value_bytes: bytes of `keep` coded values.
        packing: name of the index packing; "" where no indices are sent.
        index_bits: bits of one index; 0 where none are sent.
        index_bytes: bytes of `keep` packed indices.
    """

    selection: str
    width: int
    keep: int
    format: str
    bits: int
    block: int
    block_bytes: int
    value_bytes: int
    packing: str = ""
    index_bits: int = 0
    index_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the message."""
        return self.index_bytes + self.value_bytes
