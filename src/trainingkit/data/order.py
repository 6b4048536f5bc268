"""The endless shuffled order of samples, without keeping a permutation in memory.

Sample number `j` of a run is item `permute(j mod n)` of epoch `j div n`. The permutation is a keyed Feistel network
over Z_a x Z_b with a * b >= n, walked until it lands below n (J. Black, P. Rogaway, "Ciphers with arbitrary finite
domains", CT-RSA 2002, their generalised Feistel and cycle-walking constructions). The round function is the finaliser
of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Costs: no memory, and because a * b - n < a hardly ever a second walk.
This shuffles; it is not meant to keep secrets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainingkit.core.errors import DataError

ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_LOW_64 = (1 << 64) - 1


@dataclass(frozen=True)
class SampleOrder:
    """The order of a run.

    Args:
        n: samples in an epoch, 1 <= n < 2**62.
        seed: any integer; its low 64 bits count.

    Raises:
        DataError: there are no samples.
    """

    n: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.n < 1 << 62:
            raise DataError(
                "There is nothing to put in order.",
                field="data",
                found=f"{self.n} samples",
                expected="at least one sample",
                next_step="Check the [data] section of the recipe.",
            )

    def at(self, j: int) -> tuple[int, int]:
        """(epoch, index) of sample number `j` >= 0."""
        return j // self.n, int(self.indices(j, 1)[0])

    def indices(self, start: int, count: int) -> np.ndarray:
        """Indices of sample numbers start, ..., start + count - 1; they may span epochs.

        Returns:
            [count] int64, each 0 <= index < n.
        """
        numbers = np.arange(start, start + count, dtype=np.uint64)
        epochs, positions = np.divmod(numbers, np.uint64(self.n))
        key = np.full(1, self.seed & _LOW_64, dtype=np.uint64)
        keys = _mix(_mix(key + _GOLDEN) + epochs * _GOLDEN)
        return self._permute(positions, keys).astype(np.int64)

    def _permute(self, positions: np.ndarray, keys: np.ndarray) -> np.ndarray:
        out = self._feistel(positions, keys)
        while (outside := np.flatnonzero(out >= self.n)).size:
            out[outside] = self._feistel(out[outside], keys[outside])
        return out

    def _feistel(self, values: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """One keyed bijection of [0, a * b). values, keys: [count] uint64."""
        a = math.isqrt(self.n - 1) + 1
        b = -(-self.n // a)
        left, right = np.divmod(values, np.uint64(b))
        for number in range(1, ROUNDS, 2):
            left = (left + _mix(right + keys + number * _GOLDEN % (1 << 64)) % a) % a
            right = (right + _mix(left + keys + (number + 1) * _GOLDEN % (1 << 64)) % b) % b
        return left * b + right


def _mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64-bit words whose output bits all depend on all input bits."""
    values = (values ^ (values >> 30)) * 0xBF58476D1CE4E5B9
    values = (values ^ (values >> 27)) * 0x94D049BB133111EB
    return values ^ (values >> 31)
