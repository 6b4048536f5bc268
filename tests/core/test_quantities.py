"""Numbers for people: three digits, the right unit, never an exponent; and back."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import format_bytes, format_count, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(999), "999 B"),
        (format_bytes(65_100_000), "65.1 MB"),
        (format_bytes(999_999), "1 MB"),
        (format_bytes(1_500 * 10**12), "1500 TB"),
        (format_count(950), "950"),
        (format_count(5_000_000), "5 M"),
        (format_count(999_999), "1 M"),
        (format_seconds(0), "0 us"),
        (format_seconds(350e-6), "350 us"),
        (format_seconds(0.0021), "2.1 ms"),
        (format_seconds(0.9999), "1 s"),
        (format_seconds(7.5), "7.5 s"),
        (format_seconds(59.99), "1 min 00 s"),
        (format_seconds(200), "3 min 20 s"),
        (format_seconds(3599.9), "1 h 00 min"),
        (format_seconds(7500), "2 h 05 min"),
    ],
)
def test_examples(shown, expected):
    assert shown == expected


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 10**14))
def test_bytes_read_back_within_three_digits(n_bytes):
    shown = format_bytes(n_bytes)
    assert re.fullmatch(r"\d{1,3}(\.\d{1,2})? (B|kB|MB|GB|TB)", shown)
    assert parse_bytes(shown, field="x") == pytest.approx(n_bytes, rel=0.0051)


@settings(deadline=None, max_examples=300)
@given(st.floats(1e-6, 59))
def test_seconds_read_back_within_three_digits(seconds):
    assert parse_seconds(format_seconds(seconds), field="x") == pytest.approx(seconds, rel=0.0051, abs=6e-7)


@pytest.mark.parametrize("text", ["soon", "3 parsecs", "-1s", ""])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ConfigError, match="not a quantity") as caught:
        parse_seconds(text, field="--delay")
    assert caught.value.field == "--delay"
    assert "ms" in str(caught.value.next_step)
