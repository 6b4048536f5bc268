"""State as JSON text, without loss: what comes back equals what went in, types and float bits included.

JSON knows no tuples, bytes, non-finite floats or keys that are not strings. Those are written as an object with one
tagged key: `$tuple` with a list, `$bytes` and `$float` (8 bytes, big-endian) with hex digits, `$dict` with pairs.
Anything else (tensors, arrays, sets, objects) is refused with the path of the key: nothing is pickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

from trainingkit.core.errors import CheckpointError

TAG = "$"


def dumps(value: Any, *, where: str) -> str:
    """JSON text of `value`.

    Args:
        value: nested dicts, lists and tuples of None, bool, int, float, str and bytes.
        where: what `value` is called in errors, for example "state".

    Raises:
        CheckpointError: something in it has no JSON form; `field` is its path, for example `state.loader.order[3]`.
    """
    try:
        return json.dumps(_encode(value, where), allow_nan=False)
    except RecursionError as error:
        raise CheckpointError(
            "The state is nested too deeply, or contains itself.",
            field=where,
            next_step="Keep only plain, finite values in a state_dict.",
        ) from error


def loads(text: str | bytes, *, where: str) -> Any:
    """The value that `dumps` wrote. Raises CheckpointError when the text is not of that form."""
    try:
        return _decode(json.loads(text))
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise CheckpointError(
            "This is not the state that a snapshot holds.",
            field=where,
            found=str(error),
            expected="JSON as `trainingkit` writes it",
            next_step="Use an earlier snapshot.",
        ) from error


def _encode(value: Any, where: str) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
    if type(value) is list:
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]}
    if type(value) is bytes:
        return {"$bytes": value.hex()}
    if isinstance(value, Mapping):
        return _encode_mapping(value, where)
    kind = type(value)
    raise CheckpointError(
        "This part of the state has no JSON form.",
        field=where,
        found=f"{kind.__module__}.{kind.__qualname__}",
        expected="None, bool, int, float, str, bytes, list, tuple or dict",
        next_step="Pass tensors as named tensors, and give objects a state_dict of plain values.",
    )


def _encode_mapping(value: Mapping[Any, Any], where: str) -> Any:
    if all(type(key) is str and not key.startswith(TAG) for key in value):
        return {key: _encode(item, f"{where}.{key}") for key, item in value.items()}
    pairs = [[_encode(key, f"{where} (key)"), _encode(item, f"{where}.{key}")] for key, item in value.items()]
    return {"$dict": pairs}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith(TAG):
        return {key: _decode(item) for key, item in value.items()}
    if len(value) != 1 or tag not in _DECODERS:
        raise ValueError(f"unknown tag {tag!r}")
    return _DECODERS[tag](value[tag])


_DECODERS = {
    "$tuple": lambda items: tuple(_decode(item) for item in items),
    "$bytes": bytes.fromhex,
    "$float": lambda digits: struct.unpack(">d", bytes.fromhex(digits))[0],
    "$dict": lambda pairs: {_decode(key): _decode(item) for key, item in pairs},
}
