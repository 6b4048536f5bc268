"""A simulated job for tests of the controller: links and codecs that cost what a formula says, with noise."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from trainingkit.sync.auto.controller import Controller
from trainingkit.sync.auto.course import Course
from trainingkit.sync.auto.forecast import Link, Load, Window, forecast
from trainingkit.sync.auto.ladder import LADDER, PLAIN, Rung
from trainingkit.sync.auto.moves import Move
from trainingkit.sync.auto.seen import Seen

PARAMETERS = 10_800_000
BUCKETS = 21
RANKS = 4
CODE_S = {PLAIN: 0.0}


def load_of(rung: Rung) -> Load:
    """What a step of a 10.8 M-parameter model puts on the wire, one way and back."""
    sent = 2 * (RANKS - 1) / RANKS * 4 * PARAMETERS / rung.ratio
    return Load((sent / BUCKETS,) * BUCKETS, 1 if rung.codec == PLAIN else 2, CODE_S.get(rung.codec, 0.05))


@dataclass
class Plant:
    """One job under one controller.

    Args:
        mbit: rate of each host's link.
        compute_s: from forward's begin to the last gradient, without a codec.
        noise: relative, of every figure.
    """

    mbit: float
    compute_s: float = 2.3
    hide_s: float = 1.4
    latency_s: float = 0.002
    noise: float = 0.01
    loss: float = 3.0
    cosine: float = 0.9
    seed: int = 0
    steps: int = 0
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller = Controller(LADDER, shared=1.0, max_ratio=10.0, min_density=0.05)
        self.controller.loads = lambda: [load_of(rung) for rung in LADDER]
        self.course = Course(self.controller.rung)
        self._random = random.Random(self.seed)
        self._last: Seen | None = None

    def run(self, steps: int) -> None:
        """Steps one after the other; what a step shows is heard after the next one, as in a real run."""
        for _ in range(steps):
            self.steps += 1
            seen = self.step(self.course.at(self.steps - 1))
            heard, self._last = self._last, seen
            move = self.controller.observe(self.steps, heard) if heard is not None else None
            if move is not None:
                self.controller.wait(self.course.learn_steps(move.step, move.rung))
                self.course.move(move.step, move.rung)
                self.moves.append(move)

    def step(self, rung: Rung) -> Seen:
        """What a step on this rung shows."""
        load, link = load_of(rung), Link(self.mbit * 1e6 / 8, self.latency_s)
        window = Window(self.compute_s, self.hide_s, 1.0)
        told = forecast(window, link, load)
        rate = min(link.bytes_per_s, self._jitter(link.bytes_per_s))
        return Seen(
            window_s=self._jitter(told.step_s - told.exposed_s),
            hide_s=self._jitter(self.hide_s),
            exposed_s=self._jitter(told.exposed_s),
            code_s=self._jitter(load.code_s),
            rate=rate,
            latency_s=self._jitter(self.latency_s),
            loss=self._jitter(self.loss),
            cosine=self.cosine,
            kept=self.cosine,
        )

    def best(self) -> Rung:
        """The least lossy rung that hides and is allowed by now, by the formula itself."""
        link, window = Link(self.mbit * 1e6 / 8, self.latency_s), Window(self.compute_s, self.hide_s, 1.0)
        stable = self.controller.state_dict()["lifted"]
        allowed = [rung for rung in LADDER if stable or rung.ratio <= 10.0]
        times = [forecast(window, link, load_of(rung)).step_s for rung in allowed]
        return next(rung for rung, time in zip(allowed, times, strict=True) if time <= min(times) * 1.02)

    def _jitter(self, value: float) -> float:
        return value * (1.0 + self.noise * self._random.uniform(-1.0, 1.0))
