"""What a compiled number format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainingkit.core.registry import Registry


@dataclass(frozen=True)
class Format:
    """Two compiled functions and the memory they work in.

    Args:
        scratch: plain `(capacity, block) -> memory`, a tuple of arrays, for up to `capacity` values at a time.
        encode: `(x, residual, errors, block, message, offset, memory) -> finite`; writes the message of
            y = x + residual (`residual` may be empty) and y minus what it says into `errors`, which may be `x`.
        decode: `(message, offset, out, block, memory)`; fills `out`.
    """

    scratch: Callable[..., Any]
    encode: Callable[..., Any]
    decode: Callable[..., Any]


FORMATS: Registry[Format] = Registry("compiled number format", "trainingkit.kernels.compiled.formats")
"""By name: the format's name, followed by its width where it has several."""
