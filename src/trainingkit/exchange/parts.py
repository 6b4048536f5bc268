"""The parts of a round: runs of elements that share a codec, cut into one shard per owner.

A shard is a whole number of granules, the same for every owner; what is missing at the end is zeros. So all sizes are
known before the first byte is sent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from trainingkit.codec import Codec


@dataclass
class Residuals:
    """What one part still owes: the error of this rank's messages, and of its answers as owner.

    Each has a twin. A round reads the current one and writes the twin; `commit` swaps them, and without it nothing
    has happened. Parts over the same elements with other codecs share one object, so that a codec may change
    between two steps and nothing is lost.

    Args:
        own: [owners * shard] fp32.
        answer: [shard] fp32; None where nobody re-encodes.
    """

    own: torch.Tensor
    own_next: torch.Tensor
    answer: torch.Tensor | None
    answer_next: torch.Tensor | None

    @staticmethod
    def zeros(layout: Layout) -> Residuals:
        """Nothing owed."""
        answers = layout.answers and layout.owners > 1
        return Residuals(
            own=torch.zeros(layout.padded),
            own_next=torch.zeros(layout.padded),
            answer=torch.zeros(layout.shard) if answers else None,
            answer_next=torch.zeros(layout.shard) if answers else None,
        )

    def commit(self, *, counted: bool = True) -> None:
        """The round was taken.

        Args:
            counted: whether this rank's messages counted in the mean; if not, it still owes what it owed before.
        """
        if counted:
            self.own, self.own_next = self.own_next, self.own
        self.answer, self.answer_next = self.answer_next, self.answer


@dataclass(frozen=True)
class Layout:
    """How elements are cut into shards.

    Args:
        elements: how many there are.
        owners: how many shards; 1 where every rank decodes everything itself.
        granule: shards are a multiple of it; of every codec that will carry these elements, the granule divides it.
        answers: whether owners encode the mean of their shard again.
    """

    elements: int
    owners: int
    granule: int
    answers: bool = True

    @property
    def shard(self) -> int:
        """Elements per owner."""
        return max(1, -(-self.elements // (self.granule * self.owners))) * self.granule

    @property
    def padded(self) -> int:
        """Elements with the zeros at the end."""
        return self.shard * self.owners


class Piece(NamedTuple):
    """Some consecutive elements of a part: `tensor` [n] fp32 holds those from `start` on."""

    start: int
    tensor: torch.Tensor


class Values:
    """Where the elements of a part are: pieces that need not stand together in memory, so that nothing is copied.

    Attributes:
        pieces: in order, [layout.padded] elements together, each begins at a multiple of the layout's granule. The
            input before a round, the agreed mean after it. Zero beyond the layout's elements.
    """

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self.pieces = tuple(pieces)

    @staticmethod
    def of(tensor: torch.Tensor) -> Values:
        """All in one piece."""
        return Values([Piece(0, tensor)])


class Part:
    """Elements of a bucket as one codec carries them.

    Attributes:
        shard: elements per owner.
        message_bytes: bytes of one shard's code.
    """

    def __init__(self, codec: Codec, layout: Layout, values: Values, residuals: Residuals) -> None:
        assert layout.granule % codec.granule == 0
        self.codec = codec
        self.layout = layout
        self.values = values
        self.residuals = residuals
        self.shard = layout.shard
        self.message_bytes = codec.message_bytes(layout.shard)

    @functools.cached_property
    def code(self) -> torch.Tensor:
        """[owners * message_bytes] uint8, scratch: the code of all shards."""
        return torch.zeros(self.layout.owners * self.message_bytes, dtype=torch.uint8)

    def encode(self) -> bool:
        """Write the code of all elements, and the new residuals beside the old. Returns whether all are finite."""
        finite = True
        old, new = self.residuals.own, self.residuals.own_next
        for piece in self.values.pieces:
            elements = slice(piece.start, piece.start + piece.tensor.numel())
            code = self.code[self.bytes_of(piece)]
            finite &= self.codec.encode(piece.tensor, old[elements], code, new[elements])
        return finite

    def decode(self) -> None:
        """Read all elements from the code."""
        for piece in self.values.pieces:
            self.codec.decode(self.code[self.bytes_of(piece)], piece.tensor)

    def bytes_of(self, piece: Piece) -> slice:
        """Where a piece's code is in the code of all elements."""
        return slice(self.codec.byte_offset(piece.start), self.codec.byte_offset(piece.start + piece.tensor.numel()))
