"""The eight bytes before every message: what the receivers must know besides the values.

byte 0      flags: bit 0 is set when the sender's values were not finite
bytes 1-3   zero
bytes 4-7   the sender's weight in the mean, fp32 little-endian (an owner's answer carries 0)
"""

from __future__ import annotations

import struct

import torch

HEADER_BYTES = 8
_LAYOUT = "<B3xf"


def write_header(message: torch.Tensor, *, finite: bool, weight: float) -> None:
    """Fill the first HEADER_BYTES of a [bytes] uint8 message."""
    packed = struct.pack(_LAYOUT, 0 if finite else 1, weight)
    message[:HEADER_BYTES] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def read_header(message: torch.Tensor) -> tuple[bool, float]:
    """(finite, weight) of a message."""
    flags, weight = struct.unpack(_LAYOUT, bytes(message[:HEADER_BYTES].tolist()))
    return not flags & 1, weight
