"""Bandwidth and latency from the exchange times that a step shows anyhow.

    seconds = latency + bytes / rate

A transfer takes longer than the wire needs when a peer comes late or transfers overlap, never shorter. So transfers
that overlap are taken together, and of a step's rates a high one counts (three quarters of the bytes went no faster),
of what is left for the latency a low one.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainingkit.exchange.meter import Transfer
from trainingkit.sync.auto.forecast import Link

RATE_SHARE = 0.75
LATENCY_SHARE = 0.25
LEAST_S = 1e-6


def fit(transfers: Sequence[Transfer]) -> Link | None:
    """The link as a step's transfers show it; None where nothing was sent."""
    busy = busy_periods(transfers)
    if not busy:
        return None
    latency_s = 0.0
    rate = _rate(busy, latency_s)
    for _ in range(2):
        left = sorted(max(0.0, end - begin - sent / rate) for begin, end, sent in transfers)
        latency_s = left[int(LATENCY_SHARE * (len(left) - 1))]
        rate = _rate(busy, latency_s)
    return Link(rate, latency_s)


def busy_periods(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Transfers that overlap, taken together; those of no bytes left out."""
    periods: list[Transfer] = []
    for each in sorted(transfers):
        if periods and each.begin_s < periods[-1].end_s:
            last = periods[-1]
            joined = last.sent_bytes + each.sent_bytes
            periods[-1] = Transfer(last.begin_s, max(last.end_s, each.end_s), joined)
        else:
            periods.append(each)
    return [each for each in periods if each.sent_bytes > 0]


def _rate(busy: Sequence[Transfer], latency_s: float) -> float:
    """The rate that `RATE_SHARE` of the bytes did not exceed, bytes/s."""
    rates = sorted((sent / max(end - begin - latency_s, (end - begin) / 4, LEAST_S), sent) for begin, end, sent in busy)
    wanted = RATE_SHARE * sum(sent for _, sent in rates)
    passed = 0.0
    for rate, sent in rates:
        passed += sent
        if passed >= wanted:
            return rate
    return rates[-1][0]
