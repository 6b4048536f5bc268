"""One message of a round: the header, then each part's code for one shard, one after the other.

Encoding and decoding of whole messages, and the mean over ranks: fp32, in rank order, so that it is the same bits
wherever and whenever it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainingkit.exchange.header import HEADER_BYTES, read_header, write_header
from trainingkit.exchange.parts import Part


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
    for owner, message in enumerate(messages.unbind()):
        for part, code in _codes(parts, message):
            old, new = part.residuals.own, part.residuals.own_next
            finite &= part.codec.encode(part.of(part.values, owner), part.of(old, owner), code, part.of(new, owner))
    for message in messages.unbind():
        write_header(message, finite=finite, weight=weight)


def answer(parts: Sequence[Part], received: torch.Tensor, reply: torch.Tensor, sums: Sequence[torch.Tensor]) -> None:
    """As owner: the weighted mean of all ranks' messages, encoded again with the owner's own residual.

    Args:
        received: [ranks, bytes] uint8, in rank order.
        reply: [bytes] uint8, overwritten.
        sums: per part [shard] fp32, scratch.
    """
    finite = mean(parts, received, sums)
    for (part, code), total in zip(_codes(parts, reply), sums, strict=True):
        finite &= part.codec.encode(total, part.residuals.answer, code, part.residuals.answer_next)
    write_header(reply, finite=finite, weight=0.0)


def mean(parts: Sequence[Part], received: torch.Tensor, out: Sequence[torch.Tensor]) -> bool:
    """out = sum over ranks of (N w_r / W) x message_r, times 1/N, with W the sum of the weights w_r.

    With equal weights every factor is exactly 1, and the result is what DDP does: a sum, multiplied by 1/N.

    Returns:
        Whether every rank's values were finite.
    """
    headers = [read_header(message) for message in received.unbind()]
    factors = mean_factors([weight for _, weight in headers])
    for rank, (message, factor) in enumerate(zip(received.unbind(), factors, strict=True)):
        for (part, code), total in zip(_codes(parts, message), out, strict=True):
            part.codec.decode(code, total, weight=factor, accumulate=rank > 0)
    for total in out:
        total.mul_(1.0 / len(headers))
    return all(finite for finite, _ in headers)


def mean_factors(weights: Sequence[float]) -> list[float]:
    """N w_r / W per rank; exactly 1.0 where all weights are equal, and where all are zero."""
    if len(set(weights)) == 1:
        return [1.0] * len(weights)
    total = sum(weights)
    return [len(weights) * weight / total for weight in weights]


def hear(parts: Sequence[Part], replies: torch.Tensor) -> bool:
    """Decode every owner's reply into the parts' values.

    Args:
        replies: [owners, bytes] uint8.

    Returns:
        Whether every rank's values were finite.
    """
    finite = True
    for owner, reply in enumerate(replies.unbind()):
        sound, _ = read_header(reply)
        finite &= sound
        for part, code in _codes(parts, reply):
            part.codec.decode(code, part.of(part.values, owner))
    return finite


def _codes(parts: Sequence[Part], message: torch.Tensor) -> list[tuple[Part, torch.Tensor]]:
    codes = []
    start = HEADER_BYTES
    for part in parts:
        codes.append((part, message[start : start + part.message_bytes]))
        start += part.message_bytes
    return codes
