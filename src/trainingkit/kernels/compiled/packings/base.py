"""What a compiled index packing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainingkit.core.registry import Registry


@dataclass(frozen=True)
class Packing:
    """Two compiled functions.

    Args:
        pack: `(indices, count, bits, n_bytes, message, offset)`; writes `n_bytes` bytes. `bits` are the plan's
            `index_bits`.
        unpack: `(message, offset, count, bits, n_bytes, limit, indices, spare) -> sound`; False unless there are
            exactly `count` indices, and they ascend and stay below `limit`. `spare` has room for `count` int32.
    """

    pack: Callable[..., Any]
    unpack: Callable[..., Any]


PACKINGS: Registry[Packing] = Registry("compiled packing", "trainingkit.kernels.compiled.packings")
