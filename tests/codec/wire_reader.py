"""A second reader of the wire format, from docs/wire-format.md alone: no torch, no numpy, no code of the project."""

from __future__ import annotations

import re
import struct


def decode(codec: str, message: bytes, n: int) -> list[float]:
    """The values that a message of `n` values says, as Python floats (each an exact fp32 number)."""
    selection, quantiser = codec.split("|")[:2]
    name, settings = _part(quantiser)
    if not selection.startswith("topk"):
        values, used = _values(name, settings, message, n)
        assert used == len(message)
        return values
    _, chunk_settings = _part(selection)
    chunk, density = int(chunk_settings["chunk"]), float(chunk_settings["density"])
    out: list[float] = []
    while len(out) < n:
        length = min(chunk, n - len(out))
        row, used = _chunk(name, settings, message, length, max(1, round(density * length)), (chunk - 1).bit_length())
        out += row
        message = message[used:]
    assert not message
    return out


def _part(text: str) -> tuple[str, dict[str, str]]:
    name, inside = re.fullmatch(r"(\w+)(?:\((.*)\))?", text).groups()
    return name, dict(re.findall(r"(\w+)=([^,\s]+)", inside or ""))


def _chunk(name, settings, message, length, keep, width):
    index_bytes = -(-keep * width // 8)
    bits = int.from_bytes(message[:index_bytes], "little")
    indices = [bits >> (j * width) & ((1 << width) - 1) for j in range(keep)]
    values, used = _values(name, settings, message[index_bytes:], keep)
    row = [0.0] * length
    for index, value in zip(indices, values, strict=True):
        row[index] = value
    return row, index_bytes + used


def _values(name, settings, message, count):
    if name == "fp32":
        return list(struct.unpack(f"<{count}f", message[: 4 * count])), 4 * count
    if name == "bf16":
        return [_bf16(message[2 * i : 2 * i + 2]) for i in range(count)], 2 * count
    return _linear(int(name.removeprefix("int")), int(settings["block"]), message, count)


def _linear(bits, block, message, count):
    values, used = [], 0
    while len(values) < count:
        length = min(block, count - len(values))
        scale = _bf16(message[used : used + 2])
        n_bytes = -(-length * bits // 8)
        codes = int.from_bytes(message[used + 2 : used + 2 + n_bytes], "little")
        values += [((codes >> (i * bits) & (2**bits - 1)) - 2 ** (bits - 1)) * scale for i in range(length)]
        used += 2 + n_bytes
    return values, used


def _bf16(two: bytes) -> float:
    return struct.unpack("<f", b"\0\0" + two)[0]
