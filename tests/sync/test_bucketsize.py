"""A bucket's size follows from the model, within bounds; what is asked for counts."""

from __future__ import annotations

import pytest

from trainingkit.sync.bucketsize import LEAST_MB, MOST_MB, WANTED, bucket_mb


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (1000, LEAST_MB),
        (10_800_000, LEAST_MB),
        (124_000_000, 4 * 124_000_000 / 2**20 / WANTED),
        (7_000_000_000, MOST_MB),
    ],
)
def test_a_bucket_is_a_share_of_the_model_within_bounds(parameters: int, expected: float) -> None:
    assert bucket_mb(parameters) == pytest.approx(expected)


def test_what_is_asked_for_counts() -> None:
    assert bucket_mb(7_000_000_000, 0.5) == 0.5
