"""The ladder: ways to send gradients, from the least lossy to the fewest bytes. Read off docs/benchmarks/frontier.md.

No torch here: the ladder is also for those who only plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.codec import parse
from trainingkit.codec.size import message_bytes

PLAIN = "none"
"""In place of a codec: DDP's own all-reduce in fp32."""
START = "all|int4(block=64)"
"""Where a run begins: an eighth of the bytes, no loss that any task of the frontier page shows."""
SAMPLE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Rung:
    """One way to send matrices.

    Args:
        codec: a spec, or `PLAIN`.
        normalise: in units of the agreed second moment's root (`sync.moment`).
    """

    codec: str
    normalise: bool = False

    def __str__(self) -> str:
        return f"{self.codec}, normalised" if self.normalise else self.codec

    @property
    def ratio(self) -> float:
        """Bytes of fp32 over bytes of this rung, for matrices."""
        if self.codec == PLAIN:
            return 1.0
        return 4.0 * SAMPLE_ELEMENTS / message_bytes(self.codec, SAMPLE_ELEMENTS)

    @property
    def density(self) -> float:
        """Share of the elements that a message names."""
        if self.codec == PLAIN:
            return 1.0
        selection = parse(self.codec).selection
        return float(getattr(selection, "density", 1.0))


LADDER = (
    Rung(PLAIN),
    Rung("all|bf16"),
    Rung("all|int8(block=64)"),
    Rung(START),
    Rung("all|int3(block=64)", normalise=True),
    Rung("all|int2(block=256)", normalise=True),
    Rung("topk(density=0.05, chunk=4096)|int4(block=64)"),
    Rung("topk(density=0.015625, chunk=4096)|int2(block=256)"),
)
"""Normalised from three bits down: there it is worth more than a bit, and costs memory. fp8 is not on the frontier."""

MAX_RATIO = 10.0
MIN_DENSITY = 0.05
"""Published defaults that nobody was hurt by; a run goes beyond them once it has proved stable."""


def within_limits(rung: Rung, *, max_ratio: float = MAX_RATIO, min_density: float = MIN_DENSITY) -> bool:
    """Whether a run that has proved nothing yet may use the rung."""
    return rung.ratio <= max_ratio and rung.density >= min_density
