"""A second reader of the wire format, from docs/wire-format.md alone: no torch, no numpy, no code of the project."""

from __future__ import annotations

import re
import struct


def decode(codec: str, message: bytes, n: int) -> list[float]:
    """The values that a message of `n` values says, as Python floats (each an exact fp32 number)."""
    selection, quantiser, *packing = codec.split("|")
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
        keep = max(1, round(density * length))
        indices, index_bytes = INDICES[packing[0]](message, keep, chunk)
        values, used = _values(name, settings, message[index_bytes:], keep)
        out += [dict(zip(indices, values, strict=True)).get(i, 0.0) for i in range(length)]
        used += index_bytes
        message = message[used:]
    assert not message
    return out


def _part(text: str) -> tuple[str, dict[str, str]]:
    name, inside = re.fullmatch(r"(\w+)(?:\((.*)\))?", text).groups()
    return name, dict(re.findall(r"(\w+)=([^,\s]+)", inside or ""))


def _bits(message, keep, chunk):
    return _numbers(message, keep, (chunk - 1).bit_length())


def _bitmap(message, keep, chunk):
    n_bytes = -(-chunk // 8)
    return _ones(message[:n_bytes], keep), n_bytes


def _elias_fano(message, keep, chunk):
    def sizes(low):
        return -(-keep * low // 8), -(-(keep + (chunk - 1 >> low)) // 8)

    low_bits = min(range(chunk.bit_length()), key=lambda low: sum(sizes(low)))
    low_bytes, high_bytes = sizes(low_bits)
    lows, _ = _numbers(message, keep, low_bits)
    highs = _ones(message[low_bytes : low_bytes + high_bytes], keep)
    return [high - j << low_bits | lows[j] for j, high in enumerate(highs)], low_bytes + high_bytes


INDICES = {"bits": _bits, "bitmap": _bitmap, "elias_fano": _elias_fano}


def _numbers(message, count, width):
    n_bytes = -(-count * width // 8)
    whole = int.from_bytes(message[:n_bytes], "little")
    return [whole >> (j * width) & ((1 << width) - 1) for j in range(count)], n_bytes


def _ones(section, count):
    whole = int.from_bytes(section, "little")
    found = [i for i in range(8 * len(section)) if whole >> i & 1]
    assert len(found) == count
    return found


def _values(name, settings, message, count):
    if name == "fp32":
        return list(struct.unpack(f"<{count}f", message[: 4 * count])), 4 * count
    if name == "bf16":
        return [_bf16(message[2 * i : 2 * i + 2]) for i in range(count)], 2 * count
    bits = 8 if name == "fp8" else int(name.removeprefix("int"))
    values, used = [], 0
    while len(values) < count:
        length = min(int(settings["block"]), count - len(values))
        scale, scale_bytes = (_byte_scale(message[used]), 1) if name == "int2" else (_bf16(message[used:][:2]), 2)
        codes, code_bytes = _numbers(message[used + scale_bytes :], length, bits)
        numbers = [_fp8(code, settings["format"]) if name == "fp8" else code - 2 ** (bits - 1) for code in codes]
        values += [number * scale for number in numbers]
        used += scale_bytes + code_bytes
    return values, used


def _byte_scale(byte):
    return (1 + (byte & 3) / 4) * 2.0 ** ((byte >> 2) - 48) if byte else 0.0


def _fp8(code, form):
    fraction, bias = {"e4m3": (3, 7), "e5m2": (2, 15)}[form]
    exponent, rest = (code & 127) >> fraction, code & ((1 << fraction) - 1)
    size = (rest + (exponent > 0) * 2**fraction) * 2.0 ** (max(exponent, 1) - bias - fraction)
    return -size if code & 128 else size


def _bf16(two: bytes) -> float:
    return struct.unpack("<f", b"\0\0" + two)[0]
