"""Compiled rounding to integers, in a form that becomes vector instructions."""

from __future__ import annotations

import numpy as np

from trainingkit.kernels.compiled.options import inlined

ROUND = np.float32(12582912.0)


@inlined
def nearest(value):
    """`value`, below 2**22, rounded to an integer, ties to even: adding 1.5 * 2**23 leaves no room for a fraction."""
    return (value + ROUND) - ROUND
