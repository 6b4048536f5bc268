"""The parts of a round: runs of elements that share a codec, cut into one shard per owner.

A shard is a whole number of the codec's chunks, the same for every owner; what is missing at the end is zeros. So an
owner's share of any message is a plain range of bytes, and all sizes are known before the first byte is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainingkit.codec import Codec


@dataclass
class Residuals:
    """What one part still owes: the error of this rank's messages, and of its answers as owner.

    Each has a twin. A round reads the current one and writes the twin; `commit` swaps them, and without it nothing
    has happened.

    Args:
        own: [owners * shard] fp32.
        answer: [shard] fp32; None where nobody re-encodes.
    """

    own: torch.Tensor
    own_next: torch.Tensor
    answer: torch.Tensor | None
    answer_next: torch.Tensor | None

    def commit(self) -> None:
        """The round counted."""
        self.own, self.own_next = self.own_next, self.own
        self.answer, self.answer_next = self.answer_next, self.answer


class Part:
    """Elements of a bucket that one codec carries.

    Args:
        codec: how they travel.
        elements: how many there are.
        owners: how many shards; 1 where every rank decodes everything itself.

    Attributes:
        values: [owners * shard] fp32; the input before the round, the agreed mean after it. Zero beyond `elements`.
    """

    def __init__(self, codec: Codec, elements: int, owners: int) -> None:
        self.codec = codec
        self.elements = elements
        self.owners = owners
        step = codec.chunk * owners
        self.shard = max(1, -(-elements // step)) * codec.chunk
        self.message_bytes = codec.message_bytes(self.shard)
        self.values = torch.zeros(owners * self.shard)
        self.residuals = Residuals(
            own=torch.zeros(owners * self.shard),
            own_next=torch.zeros(owners * self.shard),
            answer=torch.zeros(self.shard) if owners > 1 else None,
            answer_next=torch.zeros(self.shard) if owners > 1 else None,
        )

    def of(self, flat: torch.Tensor, owner: int) -> torch.Tensor:
        """An owner's shard of a [owners * shard] tensor."""
        return flat[owner * self.shard : (owner + 1) * self.shard]
