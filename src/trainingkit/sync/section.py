"""Settings of synchronisation. No torch here, so that a recipe can be checked without it."""

from __future__ import annotations

from pydantic import Field, field_validator

from trainingkit.codec import parse
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section

DEFAULT_CODEC = "all|int4(block=64)"

NO_CODEC = "none"
"""In place of a codec: plain DDP, no hook."""


class SyncSection(Section):
    """Settings of synchronisation."""

    codec: str = Field(
        default=DEFAULT_CODEC,
        description="how gradients travel, for example 'all|int4(block=64)'; 'none': plain DDP",
    )
    warmup_steps: int | None = Field(
        default=None, ge=0, description="steps sent in 8 bits at the start; default: 40 with top-k, else 0"
    )
    normalise: bool = Field(
        default=False,
        description="divide matrices by the root of their agreed second moment before coding: for coarse codecs",
    )
    bucket_mb: float = Field(default=2.0, gt=0, description="size of a gradient bucket in MB of fp32")
    timeout_s: float = Field(default=300.0, gt=0, description="deadline of one collective")
    join_s: float = Field(default=120.0, gt=0, description="how long to wait for all ranks at the start")

    @field_validator("codec")
    @classmethod
    def _codec_can_be_read(cls, codec: str) -> str:
        if codec == NO_CODEC:
            return codec
        try:
            return str(parse(codec, field="sync.codec"))
        except ConfigError as error:
            raise ValueError(f"a codec: {error}") from error
