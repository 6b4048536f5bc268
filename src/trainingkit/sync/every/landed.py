"""What a round agreed on: the messages that every rank decodes. Whoever keeps them can have the agreed model again.

`Rounds.tap` is given each round right before it is applied, on the training thread, so in the same order on all ranks.
`EverySync.apply_again` takes the outer step of kept messages, to the last bit, without training.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from trainingkit.sync.every.parcel import Parcel

SAMPLE = 64
"""Elements of each parcel that a checksum looks at."""


@dataclass(frozen=True)
class Landed:
    """One fragment's round.

    Args:
        fragment: its number.
        rows: of each of its parcels, [ranks, bytes] uint8, row r said by rank r. Views: valid during the tap's call.
    """

    fragment: int
    rows: tuple[torch.Tensor, ...]


RoundTap = Callable[[Landed], None]


def sample_crc32(parcels: Iterable[Parcel]) -> int:
    """CRC-32 over some elements of the agreed model, spread evenly over each parcel."""
    crc = 0
    for parcel in parcels:
        stride = max(1, parcel.agreed.numel() // SAMPLE)
        crc = zlib.crc32(parcel.agreed[::stride].contiguous().numpy().tobytes(), crc)
    return crc
