"""What would a step cost on another rung? Buckets become ready behind backward and pass the wire one by one.

    stolen    = shared x (code + byte x hidden)                    what computing loses to codec and transport
    free_i    = max(free_{i-1}, ready_i) + stretch x sent_i / rate the wire is a queue
    exposed   = max(0, free_last + trips x latency + tail - hide)  what waits after the last gradient
    step      = window + stolen + exposed

Where ranks train apart a round has `lag` steps to hide in, and what it costs is spread over H steps:

    spent     = compute + (shared x (code + byte x sent) + apply) / H
    exposed   = max(0, trips x latency + stretch x sent / rate + tail - lag x spent) / H
    step      = spent + exposed

`window` is the time from forward's begin to the last gradient, `hide` that from the first bucket's gradient to the
last; both grow by what is stolen. On a CPU, codec threads take their seconds from those who compute (`shared` is 1), on
a GPU they do not (0); so do, for each byte, the threads and interrupts that move and add what is sent (`byte`), while
there is something to hide behind: `hidden` = min(sent, rate x hide).
Pure, and of sums, products and comparisons only, so that every rank comes to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainingkit.core.plainsum import plain_sum


@dataclass(frozen=True)
class Link:
    """What a rank's link does.

    Args:
        bytes_per_s: sent at the same time as as many are received.
        latency_s: of one collective without its bytes.
    """

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """What a rung puts on the wire and on the processor in one step.

    Args:
        bucket_bytes: bytes that one rank sends for each bucket, in order.
        trips: collectives of a bucket that follow each other.
        code_s: seconds of encoding and decoding.
        ready: shares of the time to hide in after which each bucket is ready, where that is known; else evenly.
        stretch: how many times as long as its bytes alone it keeps the wire, where its pattern does not fill the link.
        every: steps from one exchange to the next; bytes and seconds are those of one exchange.
        lag: steps from an exchange's start until it is applied, where ranks train apart.
        apply_s: seconds of the training thread in a round, to measure and apply differences.
    """

    bucket_bytes: tuple[float, ...]
    trips: int
    code_s: float
    ready: tuple[float, ...] = ()
    stretch: float = 1.0
    every: int = 1
    lag: int = 0
    apply_s: float = 0.0

    @property
    def sent_bytes(self) -> float:
        """Of one exchange."""
        return plain_sum(self.bucket_bytes)

    @property
    def step_bytes(self) -> float:
        """Of a step, in the mean."""
        return self.sent_bytes / self.every


@dataclass(frozen=True)
class Window:
    """Time of a step that does not depend on the rung.

    Args:
        compute_s: from forward's begin to the last gradient, without what codec threads take.
        hide_s: from the first bucket's gradient to the last: what of it a round can hide behind.
        shared: which part of codec seconds computing loses, 0 to 1.
        byte_s: seconds of a processor that a byte costs on its way, where that was measured.
    """

    compute_s: float
    hide_s: float
    shared: float
    byte_s: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, and of its wait after the last gradient."""

    step_s: float
    exposed_s: float


def forecast(window: Window, link: Link, load: Load) -> Forecast:
    """The step of a rung. See the top of this file."""
    return _apart(window, link, load) if load.every > 1 else _each_step(window, link, load)


def _each_step(window: Window, link: Link, load: Load) -> Forecast:
    last = max(1, len(load.bucket_bytes) - 1)
    rate = link.bytes_per_s / load.stretch
    hidden = min(load.sent_bytes, rate * window.hide_s)
    stolen_s = window.shared * (load.code_s + window.byte_s * hidden)
    hide_s = window.hide_s + stolen_s * (window.hide_s / window.compute_s if window.compute_s > 0 else 0.0)
    free_s = 0.0
    for index, sent in enumerate(load.bucket_bytes):
        ready_s = hide_s * (load.ready[index] if load.ready else index / last)
        free_s = max(free_s, ready_s) + sent / rate
    tail_s = load.code_s / max(1, len(load.bucket_bytes))
    exposed_s = max(0.0, free_s + load.trips * link.latency_s + tail_s - hide_s)
    return Forecast(window.compute_s + stolen_s + exposed_s, exposed_s)


def _apart(window: Window, link: Link, load: Load) -> Forecast:
    stolen_s = window.shared * (load.code_s + window.byte_s * load.sent_bytes) + load.apply_s
    spent_s = window.compute_s + stolen_s / load.every
    tail_s = load.code_s / max(1, len(load.bucket_bytes))
    wire_s = load.trips * link.latency_s + load.sent_bytes * load.stretch / link.bytes_per_s
    exposed_s = max(0.0, wire_s + tail_s - load.lag * spent_s) / load.every
    return Forecast(spent_s + exposed_s, exposed_s)


def pick_of(step_s: Sequence[float | None], apart: Sequence[bool], *, slack: float, worth: float) -> int:
    """As `pick`, but a rung on which ranks train apart only where all others are longer by more than `worth`.

    Args:
        apart: by rung; at least one that may be used is not.
        worth: share of the shortest step.
    """
    gradients = [None if is_apart else seconds for seconds, is_apart in zip(step_s, apart, strict=True)]
    shortest = min(seconds for seconds in step_s if seconds is not None)
    near = min(seconds for seconds in gradients if seconds is not None) <= shortest * (1.0 + worth)
    return pick(gradients if near else step_s, slack=slack)


def pick(step_s: Sequence[float | None], *, slack: float) -> int:
    """The least lossy rung that hides: the first whose step is within `slack` of the shortest.

    Args:
        step_s: by rung, from the least lossy on; None: not to be used.
    """
    known = [seconds for seconds in step_s if seconds is not None]
    best = min(known)
    return next(i for i, seconds in enumerate(step_s) if seconds is not None and seconds <= best * (1.0 + slack))
