"""A cable that takes time and loses frames, for kernels without netem: a process between two TAP devices.

Frames from `near` to `far` are held for the delay, or lost; frames from `far` to `near` pass at once. Order is kept.
Rates are not its business: the token buckets of both devices come before it. It counts what it does, and how late it
was, in memory that is shared with the holder.

Cost: two system calls a frame. With delay alone a frame is up to 64 kB of a TCP stream; with loss it is one
Ethernet frame, so that single packets are lost, as on a wire.
"""

from __future__ import annotations

import mmap
import os
import random
import select
import struct
import time
from collections import deque
from dataclasses import dataclass, field

BATCH_FRAMES = 64
SEGMENT_BYTES = 65536 + 128
FRAME_BYTES = 2048
LATE_SHARE = 0.1
LATE_FLOOR_S = 0.001
RELAY_BPS = 2_000_000_000
RELAY_LOSSY_BPS = 500_000_000
"""What one relay carried on a 2-core Xeon, TCP, one direction (docs/netlab.md): without loss, and with."""

_LAYOUT = struct.Struct("4Q1d")
MEMORY_BYTES = _LAYOUT.size


@dataclass
class RelayCounters:
    """What a relay did since the lab began.

    Args:
        frames: frames passed on, both ways.
        lost: frames lost on purpose.
        refused: frames that the kernel did not take.
        late: frames that were passed on later than a tenth of the delay (at least 1 ms) after they were due.
        worst_late_s: seconds of the latest.
    """

    frames: int = 0
    lost: int = 0
    refused: int = 0
    late: int = 0
    worst_late_s: float = 0.0

    def store(self, memory: mmap.mmap) -> None:
        """Write into shared memory."""
        _LAYOUT.pack_into(memory, 0, self.frames, self.lost, self.refused, self.late, self.worst_late_s)


def load_counters(memory: mmap.mmap) -> RelayCounters:
    """What `RelayCounters.store` last wrote."""
    return RelayCounters(*_LAYOUT.unpack_from(memory, 0))


@dataclass
class Relay:
    """The state of one relay.

    Args:
        near, far: files of the two TAP devices.
        delay_s: seconds from near to far.
        loss: share of frames lost from near to far.
        draw: where the chances come from.
        frame_bytes: longest frame that is read.
    """

    near: int
    far: int
    delay_s: float
    loss: float
    draw: random.Random
    frame_bytes: int = SEGMENT_BYTES
    counters: RelayCounters = field(default_factory=RelayCounters)
    held: deque[tuple[float, bytes]] = field(default_factory=deque)

    def turn(self) -> None:
        """Wait for a frame or for the first that is due; pass on everything that may go."""
        wait_s = max(0.0, self.held[0][0] - time.monotonic()) if self.held else None
        ready, _, _ = select.select((self.near, self.far), (), (), wait_s)
        if self.far in ready:
            for frame in drain(self.far, self.frame_bytes):
                self._pass(self.near, frame)
        if self.near in ready:
            self._hold(drain(self.near, self.frame_bytes))
        self._release()

    def _hold(self, frames: list[bytes]) -> None:
        due = time.monotonic() + self.delay_s
        for frame in frames:
            if self.loss and self.draw.random() < self.loss:
                self.counters.lost += 1
            else:
                self.held.append((due, frame))

    def _release(self) -> None:
        now = time.monotonic()
        while self.held and self.held[0][0] <= now:
            due, frame = self.held.popleft()
            late_s = now - due
            if late_s > max(LATE_FLOOR_S, LATE_SHARE * self.delay_s):
                self.counters.late += 1
            self.counters.worst_late_s = max(self.counters.worst_late_s, late_s)
            self._pass(self.far, frame)

    def _pass(self, device: int, frame: bytes) -> None:
        try:
            os.write(device, frame)
            self.counters.frames += 1
        except OSError:
            self.counters.refused += 1


def drain(device: int, frame_bytes: int) -> list[bytes]:
    """The frames that wait in a device, at most `BATCH_FRAMES`."""
    frames: list[bytes] = []
    try:
        while len(frames) < BATCH_FRAMES:
            frames.append(os.read(device, frame_bytes))
    except BlockingIOError:
        pass
    return frames


def run_relay(relay: Relay, memory: mmap.mmap) -> None:
    """Relay until the process is killed. Raises OSError when a device is gone."""
    while True:
        relay.turn()
        relay.counters.store(memory)
