"""The ladder: ways to agree, from the least lossy to the fewest bytes. Read off docs/benchmarks/frontier.md.

On the rungs of `APART` gradients never travel: each rank trains on its own and every H-th step starts a round over what
has changed (`sync.every`). No torch here: the ladder is also for those who only plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.codec import parse
from trainingkit.codec.size import message_bytes
from trainingkit.core.errors import ConfigError

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
        every: steps from one round to the next; 1: gradients travel, in each step.
        tau: a round is applied so many steps after its start.
    """

    codec: str
    normalise: bool = False
    every: int = 1
    tau: int = 0

    def __str__(self) -> str:
        if self.apart:
            return f"every({self.every}, tau={self.tau})|{self.codec}"
        return f"{self.codec}, normalised" if self.normalise else self.codec

    @property
    def apart(self) -> bool:
        """Whether ranks train on their own between rounds; its text is then one that `sync.every` reads."""
        return self.every > 1

    @property
    def told(self) -> str:
        """What happens on it, as a clause."""
        return f"ranks train apart by {self}" if self.apart else f"gradients travel as {self}"

    @property
    def ratio(self) -> float:
        """Bytes of fp32 over bytes of this rung, for the matrices of one exchange."""
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

APART = (
    Rung(START, every=2, tau=1),
    Rung(START, every=4, tau=2),
    Rung(START, every=4, tau=4),
    Rung(START, every=8, tau=8),
)
"""Fewer rounds, then later ones; all in `START`'s bits. See docs/decisions/0014-every-in-auto.md for what they lose."""
APART_BEFORE = "topk(density=0.05, chunk=4096)|int4(block=64)"
"""The first rung that loses more than they do."""
MAX_EVERY = 4
"""Local steps have been found harmless far beyond this (DiLoCo: 500); it is a limit for those who did not ask."""


def whole_ladder(max_every: int = MAX_EVERY) -> tuple[Rung, ...]:
    """Gradients' rungs and those apart with at most so many steps between two rounds, the least lossy first."""
    at = next(index for index, rung in enumerate(LADDER) if rung.codec == APART_BEFORE)
    return (*LADDER[:at], *(rung for rung in APART if rung.every <= max_every), *LADDER[at:])


MAX_RATIO = 10.0
MIN_DENSITY = 0.05
"""Published defaults that nobody was hurt by; a run goes beyond them once it has proved stable."""


def within_limits(rung: Rung, *, max_ratio: float = MAX_RATIO, min_density: float = MIN_DENSITY) -> bool:
    """Whether a run that has proved nothing yet may use the rung."""
    return rung.ratio <= max_ratio and rung.density >= min_density


def start_within(*, max_ratio: float, min_density: float) -> Rung:
    """Where a run begins: on the fewest bytes within the limits, but no lossier than `START`.

    Raises:
        ConfigError: not even plain DDP is within them.
    """
    start = LADDER.index(Rung(START))
    for rung in reversed(LADDER[: start + 1]):
        if within_limits(rung, max_ratio=max_ratio, min_density=min_density):
            return rung
    name, found = ("max_ratio", max_ratio) if max_ratio < 1.0 else ("min_density", min_density)
    raise ConfigError(
        "The controller may use no rung at all, not even plain DDP, which sends every element in fp32.",
        field=f"sync.{name}",
        found=found,
        expected="at least 1" if name == "max_ratio" else "at most 1",
        next_step=f"Leave {name} out, or set it to {MAX_RATIO if name == 'max_ratio' else MIN_DENSITY:g}.",
    )
