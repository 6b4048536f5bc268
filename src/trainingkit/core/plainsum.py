"""A sum that is the same wherever it is taken: from left to right. `sum` of floats compensates since Python 3.12."""

from __future__ import annotations

from collections.abc import Iterable


def plain_sum(values: Iterable[float]) -> float:
    """The sum, rounded after each addition.

    >>> plain_sum([0.1] * 10)
    0.9999999999999999
    """
    total = 0.0
    for value in values:
        total += value
    return total
