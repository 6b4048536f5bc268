"""Settings of synchronisation. No torch here, so that a recipe can be checked without it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, field_validator

from trainingkit.cluster.islands import Islands
from trainingkit.codec import parse
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section
from trainingkit.sync.auto.ladder import MAX_RATIO, MIN_DENSITY
from trainingkit.sync.every import parse_every, trains_apart

DEFAULT_CODEC = "all|int4(block=64)"

NO_CODEC = "none"
"""In place of a codec: plain DDP, no hook."""

AUTO_CODEC = "auto"
"""In place of a codec: the controller chooses (`sync.auto`)."""

AUTO_ISLANDS, NO_ISLANDS = "auto", "off"
IslandChoice = str | Sequence[Sequence[int]]
"""`AUTO_ISLANDS`, `NO_ISLANDS`, or ranks by island."""


class SyncSection(Section):
    """Settings of synchronisation."""

    codec: str = Field(
        default=AUTO_CODEC,
        description="how gradients travel, for example 'all|int4(block=64)'; 'auto': as the link allows; 'none': plain "
        "DDP",
    )
    warmup_steps: int | None = Field(
        default=None,
        ge=0,
        description="steps sent in 8 bits at the start; default: 40 with top-k, 10 if normalised with at most 3 bits, "
        "else 0",
    )
    normalise: bool = Field(
        default=False,
        description="divide matrices by the root of their agreed second moment before coding: for coarse codecs",
    )
    adaptive: bool = Field(
        default=False,
        description="with normalise: let each bucket of matrices travel in other numbers than the codec's, in no more "
        "bytes in all; it has won nothing yet",
    )
    islands: str | list[list[int]] = Field(
        default=AUTO_ISLANDS,
        description="which ranks share a fast network, such as [[0, 1], [2, 3]]; 'auto': measured; 'off': all alike",
    )
    max_ratio: float = Field(
        default=MAX_RATIO, ge=1, description="with 'auto': at most so many times fewer bytes, until 200 steady steps"
    )
    min_density: float = Field(
        default=MIN_DENSITY,
        gt=0,
        le=1,
        description="with 'auto': at least this share of the elements is sent, until 200 steady steps",
    )
    max_every: int | None = Field(
        default=None,
        ge=1,
        description="with 'auto': at most so many steps from one exchange to the next, ranks training apart meanwhile, "
        "wherever that is faster; 1: never; default: 4, where steps would be a fifth longer without",
    )
    replay: str | None = Field(
        default=None, description="with 'auto': the decisions.jsonl of a run whose moves are to be repeated"
    )
    bucket_mb: float | None = Field(
        default=None,
        gt=0,
        description="size of a gradient bucket in MB of fp32; default: a 24th of the model, from 2 to 25",
    )
    timeout_s: float = Field(default=300.0, gt=0, description="deadline of one collective")
    join_s: float = Field(default=120.0, gt=0, description="how long to wait for all ranks at the start")

    @field_validator("codec")
    @classmethod
    def _codec_can_be_read(cls, codec: str) -> str:
        if codec in (NO_CODEC, AUTO_CODEC):
            return codec
        try:
            if trains_apart(codec, field="sync.codec"):
                return str(parse_every(codec, field="sync.codec"))
            return str(parse(codec, field="sync.codec"))
        except ConfigError as error:
            raise ValueError(f"a codec: {error}") from error

    @field_validator("islands", mode="before")
    @classmethod
    def _islands_can_be_used(cls, islands: object) -> object:
        if islands in (AUTO_ISLANDS, NO_ISLANDS):
            return islands
        if not isinstance(islands, list) or not all(
            isinstance(group, list) and all(type(rank) is int for rank in group) for group in islands
        ):
            raise ValueError("'auto', 'off', or ranks by island, for example [[0, 1], [2, 3]]")
        try:
            return [list(group) for group in Islands.of(islands, field="sync.islands").groups]
        except ConfigError as error:
            raise ValueError(f"islands: {error}") from error
