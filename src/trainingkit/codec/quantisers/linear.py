"""Signed levels in blocks that share a bf16 scale: the base of `int3`, `int4`, `int8`. Another width is a subclass."""

from __future__ import annotations

from typing import ClassVar

from trainingkit.codec.quantisers.blocked import Blocked


class Linear(Blocked):
    """Levels -L .. L with L = 2**(bits - 1) - 1; the block's largest magnitude is level L."""

    number_format: ClassVar[str] = "linear"
