"""Rates as texts: what is read, what is refused, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import ConfigError
from trainingkit.netlab import format_rate, parse_rate


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("100mbit", 100_000_000),
        ("25Mbit/s", 25_000_000),
        (" 2.5 gbit ", 2_500_000_000),
        ("625kbit", 625_000),
        ("20000bit/s", 20_000),
        ("unshaped", None),
        ("Unshaped", None),
    ],
)
def test_rates_that_people_write(text: str, rate_bps: int | None):
    assert parse_rate(text, field="link") == rate_bps


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 9999), st.sampled_from(["kbit", "mbit", "gbit"]))
def test_a_formatted_rate_reads_back(count: int, unit: str):
    rate_bps = count * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[unit]
    if rate_bps < 10_000:
        rate_bps *= 1000
    assert parse_rate(format_rate(rate_bps), field="link") == rate_bps


@pytest.mark.parametrize("text", ["100", "100mbps", "fast", "-5mbit", "1e3mbit", "", "5mbit 6mbit", "nan mbit"])
def test_other_texts_are_refused(text: str):
    with pytest.raises(ConfigError) as caught:
        parse_rate(text, field="--link")
    message = str(caught.value)
    assert "This is not a link rate we can read." in message
    assert "--link" in message
    assert repr(text) in message
    assert "'100mbit'" in message
    assert "kbit, mbit or gbit" in message


def test_a_rate_that_no_tcp_survives_is_refused():
    with pytest.raises(ConfigError, match="too slow for TCP"):
        parse_rate("9kbit", field="link")
