"""One message of a round: the header, then each part's code for one shard, one after the other.

Encoding and decoding of whole messages, and the mean over ranks: fp32, in rank order, so that it is the same bits
wherever and whenever it is taken. A part is encoded for all owners at once: a shard is a whole number of granules, so
its code is a range of bytes of the whole part's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from trainingkit.exchange.header import HEADER_BYTES, read_header, write_header
from trainingkit.exchange.parts import Part, Piece


class Heard(NamedTuple):
    """What the headers of all ranks' messages say together.

    Args:
        finite: whether the values of every rank that counts were finite.
        factors: N w_r / W per rank.
    """

    finite: bool
    factors: list[float]


def total_bytes(parts: Sequence[Part]) -> int:
    """Length of a message."""
    return HEADER_BYTES + sum(part.message_bytes for part in parts)


def say(parts: Sequence[Part], messages: torch.Tensor, *, weight: float) -> None:
    """Encode this rank's values for every owner, and write the new residuals beside the old.

    Args:
        messages: [owners, bytes] uint8, overwritten. The flag of every header says whether *all* values were finite,
            so that every owner learns it.
    """
    finite = True
    for part, code in _codes(parts, messages):
        finite &= part.encode()
        code.copy_(part.code.view(code.shape))
    for message in messages.unbind():
        write_header(message, finite=finite, weight=weight)


def listen(received: torch.Tensor) -> Heard:
    """Read the headers of all ranks' messages, [ranks, bytes] uint8 in rank order.

    A rank of weight zero takes no part, so it does not matter either whether its values were finite.
    """
    headers = [read_header(message) for message in received.unbind()]
    factors = mean_factors([weight for _, weight in headers])
    return Heard(all(finite or not factor for (finite, _), factor in zip(headers, factors, strict=True)), factors)


def mean_factors(weights: Sequence[float]) -> list[float]:
    """N w_r / W per rank, W the sum of the weights; exactly 1.0 where all weights are equal, all zero included."""
    if len(set(weights)) == 1:
        return [1.0] * len(weights)
    total = sum(weights)
    return [len(weights) * weight / total for weight in weights]


def mean(
    parts: Sequence[Part],
    received: torch.Tensor,
    factors: Sequence[float],
    out: Sequence[Sequence[Piece]],
    *,
    each: int = 1,
) -> None:
    """out = sum over ranks of factor_r x message_r, times 1/N.

    With equal weights every factor is exactly 1, and the result is what DDP does: a sum, multiplied by 1/N.

    Args:
        received: [ranks, bytes] uint8, in rank order.
        out: per part the pieces, [shard] fp32 together, overwritten.
        each: of how many the values of one message are the sum; N counts all of them.
    """
    for (part, codes), pieces in zip(_codes(parts, received), out, strict=True):
        for piece in pieces:
            of_piece = codes[:, part.bytes_of(piece)]
            for rank, (code, factor) in enumerate(zip(of_piece.unbind(), factors, strict=True)):
                part.codec.decode(code, piece.tensor, weight=factor, accumulate=rank > 0)
            piece.tensor.mul_(1.0 / (each * len(factors)))


def answer(
    parts: Sequence[Part],
    received: torch.Tensor,
    reply: torch.Tensor,
    sums: Sequence[torch.Tensor],
    *,
    each: int = 1,
) -> list[float]:
    """As owner: the weighted mean of all ranks' messages, encoded again with the owner's own residual.

    Args:
        received: [ranks, bytes] uint8, in rank order.
        reply: [bytes] uint8, overwritten.
        sums: per part [shard] fp32, scratch.
        each: as in `mean`.

    Returns:
        The factors of all ranks.
    """
    finite, factors = listen(received)
    mean(parts, received, factors, [[Piece(0, total)] for total in sums], each=each)
    for (part, code), total in zip(_codes(parts, reply.unsqueeze(0)), sums, strict=True):
        finite &= part.codec.encode(total, part.residuals.answer, code[0], part.residuals.answer_next)
    write_header(reply, finite=finite, weight=0.0)
    return factors


def hear(parts: Sequence[Part], replies: torch.Tensor) -> bool:
    """Decode every owner's reply into the parts' values.

    Args:
        replies: [owners, bytes] uint8.

    Returns:
        Whether every owner found all values finite.
    """
    for part, code in _codes(parts, replies):
        part.code.view(code.shape).copy_(code)
        part.decode()
    return all(read_header(reply)[0] for reply in replies.unbind())


def _codes(parts: Sequence[Part], messages: torch.Tensor) -> Iterator[tuple[Part, torch.Tensor]]:
    """Each part with its columns of some messages: [messages, part.message_bytes] uint8."""
    start = HEADER_BYTES
    for part in parts:
        yield part, messages[:, start : start + part.message_bytes]
        start += part.message_bytes
