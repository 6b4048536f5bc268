"""What all ranks agreed on for one bucket: the messages that each of them decodes; and the mean from them again.

Whoever sets `Squeezed.tap` is given each bucket's messages (`Agreed`) as soon as they are decoded. From kept messages
`mean_again` makes the gradients that the optimizer saw, to the last bit, without forward or backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from trainingkit.exchange.registry import Repeatable
from trainingkit.sync.auto.ladder import Rung
from trainingkit.sync.buckets import Buckets, Shape


@dataclass(frozen=True)
class Agreed:
    """One bucket's messages.

    Args:
        names: of the bucket's parameters, in its order.
        rung: on which the step travels.
        codec: that carries the bucket's matrices.
        scale: of the gradients (a GradScaler's).
        rows: [ranks, bytes] uint8, row r said by rank r. A view: valid during the call of the tap only.
    """

    names: tuple[str, ...]
    rung: Rung
    codec: str
    scale: float
    rows: torch.Tensor


Tap = Callable[[Agreed], None]
"""Called on the exchange's last thread, bucket after bucket in the same order on all ranks."""


def mean_again(
    buckets: Buckets, kept: Iterable[Agreed], sizes: Mapping[str, int], *, rank: int
) -> dict[str, torch.Tensor]:
    """Each parameter's agreed gradient by name, [elements] fp32 in storage order. Moments follow; residuals stay.

    Args:
        kept: all buckets of one step, in order.
        sizes: elements of each parameter by name.
        rank: owner of which shard this rank is.
    """
    found: dict[str, torch.Tensor] = {}
    for each in kept:
        bucket = buckets.of(Shape(each.names, {name: sizes[name] for name in each.names}))
        round_ = bucket.round(each.rung, rank, each.codec)
        assert isinstance(round_, Repeatable)
        flat = torch.zeros(sum(sizes[name] for name in each.names))
        for carried in bucket.carried:
            carried.take(flat, 1.0)
        round_.hear_again(each.rows)
        for carried in bucket.carried:
            carried.put(flat, each.scale)
            carried.follow(rank=rank)
        found |= zip(each.names, flat.split([sizes[name] for name in each.names]), strict=True)
    return found
