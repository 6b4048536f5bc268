"""A contender's name: how it sends, then after plus signs its optimizer and the type it computes in.

    every(4)|all|int4+muon(ns_steps=4)+fp32  ->  way "every(4)|all|int4", Muon with four iterations, computing in fp32
    plain+batch(2)                           ->  way "plain", AdamW, two samples a step on each host

What is not named is AdamW, the bench's own batch, and what this machine computes in by itself. "+normalised" belongs
to the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from trainingkit.codec.grammar import bind, split_part
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section, check
from trainingkit.optim import OPTIMIZERS

SEPARATOR = "+"
OF_THE_WAY = ("normalised",)
COMPUTES = ("bf16", "fp32")
DEFAULT_OPTIMIZER = "adamw"
BATCH = "batch"
Compute = Literal["bf16", "fp32"]


@dataclass(frozen=True)
class Named:
    """A name, read.

    Args:
        way: how gradients or updates travel: a registered contender, a codec, or every(H)|codec.
        optimizer: a recipe's table, `kind` and what was given beside it.
        compute: None: what this machine computes in by itself.
        batch: samples a step on each host; None: as many as the bench's scale has.
    """

    way: str
    optimizer: dict[str, Any] = field(default_factory=lambda: {"kind": DEFAULT_OPTIMIZER})
    compute: Compute | None = None
    batch: int | None = None


class BatchPart(Section):
    """What "batch(...)" may hold."""

    samples: int = Field(ge=1, description="a step on each host")


def read_name(name: str, *, field: str = "--contenders") -> Named:
    """The parts of a name.

    Raises:
        ConfigError: an optimizer or a setting of it that there is not, two optimizers, or a batch that is no number.
    """
    way, *others = (part.strip() for part in name.split(SEPARATOR))
    optimizers, compute, batch = [], None, None
    for part in others:
        if part in OF_THE_WAY:
            way += SEPARATOR + part
        elif part in COMPUTES:
            compute = part
        elif part.partition("(")[0] == BATCH:
            batch = _batch(part, field)
        else:
            optimizers.append(_optimizer(part, field))
    if len(optimizers) > 1:
        raise ConfigError(
            "A contender has one optimizer.",
            field=field,
            found=repr(name),
            expected="at most one of " + ", ".join(OPTIMIZERS.names()),
            next_step="Remove the others from the name.",
        )
    return Named(way, optimizers[0] if optimizers else {"kind": DEFAULT_OPTIMIZER}, compute, batch)


def _batch(text: str, field: str) -> int:
    _, arguments = split_part(text, field=field)
    field = f"{field}.{BATCH}"
    return check(BatchPart, bind(BatchPart, arguments, field=field), field=field).samples


def _optimizer(text: str, field: str) -> dict[str, Any]:
    kind, arguments = split_part(text, field=field)
    section = OPTIMIZERS.get(kind, field=field)
    return {"kind": kind, **bind(section, arguments, field=f"{field}.{kind}")}
