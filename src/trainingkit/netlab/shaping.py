"""Lines for `tc -batch` that shape one device. A device shapes what leaves through it, so a link has two of them.

The token bucket (tbf) has two choices of ours:

- **burst**, what may pass at once after silence: 2 ms of the rate, at least 70 kB, which is one whole segment (64 kB)
  that TCP hands down. With less, the bucket cuts each segment into frames in software, on the hosts' own processors:
  work that a network card does for nothing.
- **limit**, what may wait; more is dropped. A port of a switch: 50 ms of the rate plus the round trip, at least 100
  full frames. A host's own device: at least 1000 full frames, as Linux has by default, so that TCP, which has no more
  than two segments (of up to 64 kB) of a stream there, feels its own bucket as back-pressure and loses nothing in it.

The bucket counts Ethernet frames (1514 bytes for 1448 of payload), so TCP reaches 0.956 of the stated rate.
"""

from __future__ import annotations

FRAME_BYTES = 1514
BURST_S = 0.002
LEAST_BURST_BYTES = 70_000
QUEUE_S = 0.050
SWITCH_FRAMES = 100
HOST_FRAMES = 1000
NETEM_FRAMES = 100_000
"""How many frames netem may hold; it must never be what drops them."""
NETEM_PARENT = "parent 1:1"
"""Where the bucket goes below netem."""


def burst_bytes(rate_bps: int) -> int:
    """Bytes that pass at once after silence, in whole kB; the same for all rates up to 280 Mbit/s."""
    return max(LEAST_BURST_BYTES, 1000 * round(rate_bps * BURST_S / 8000))


def limit_bytes(rate_bps: int, round_trip_s: float, frames: int) -> int:
    """Bytes that may wait in the bucket's queue; at least `frames` full frames."""
    return max(frames * FRAME_BYTES, round(rate_bps * (QUEUE_S + round_trip_s) / 8)) + burst_bytes(rate_bps)


def shape(device: str, rate_bps: int, *, round_trip_s: float, frames: int, parent: str = "root") -> list[str]:
    """Shape a device, or change the rate of one that is shaped.

    The bucket's handle is its burst in kB: with the same burst a bucket is changed in place, and what waits in it
    stays; with another burst it is a new one, because a segment that waits and is longer than the new burst would
    never pass, nor would anything behind it.
    """
    burst = burst_bytes(rate_bps)
    limits = f"burst {burst} limit {limit_bytes(rate_bps, round_trip_s, frames)}"
    return [f"qdisc replace dev {device} {parent} handle {burst // 1000:x}: tbf rate {rate_bps}bit {limits}"]


def unshape(device: str, *, parent: str = "root") -> list[str]:
    """Take the bucket of a device away again."""
    return [f"qdisc replace dev {device} {parent} handle {'2' if parent == 'root' else '3'}: pfifo limit {HOST_FRAMES}"]


def impair(device: str, *, delay_s: float, loss: float) -> list[str]:
    """Delay and loss by the kernel's netem as the device's root; the bucket then goes below it, at `NETEM_PARENT`."""
    chance = f" loss {loss * 100:.6g}%" if loss else ""
    return [f"qdisc replace dev {device} root handle 1: netem limit {NETEM_FRAMES} delay {delay_s * 1e6:.0f}us{chance}"]
