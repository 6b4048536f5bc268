"""How every Triton kernel is built and launched.

Rounding is part of the wire format: no product may be fused with a sum (see `options_for`), and divisions are `div_rn`,
since the plain one is approximate on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_TILE = 16384
"""Values that one program holds at most: 16 a thread with 32 warps."""
VALUES_PER_WARP = 512

piece: Callable[[Callable[..., Any]], Any] = triton.jit
"""Decorator of the functions that run on the device."""


def lanes(count: int, least: int = 1) -> int:
    """Lanes of a tile for `count` values: a power of two, at least `least`."""
    return 1 << (max(count, least) - 1).bit_length()


def options_for(tile: int) -> dict[str, Any]:
    """Compiler options for programs of `tile` values: 1 to 32 warps, and every operation rounds on its own."""
    return {"num_warps": min(max(tile // VALUES_PER_WARP, 1), 32), "enable_fp_fusion": False}


def launch(kernel: Any, grid: tuple[int, ...], tile: int, *arguments: Any, **constants: Any) -> None:
    """Run `kernel` on `grid`, in programs of `tile` values."""
    kernel[grid](*arguments, **constants, **options_for(tile))


def new_flag(tensor: Tensor) -> Tensor:
    """[1] int32 zero beside `tensor`; a program that has something to report writes 1."""
    import torch

    return tensor.new_zeros(1, dtype=torch.int32)
