"""Settings of precision. No torch here, so that a recipe can be checked without it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainingkit.core.section import Section


class PrecisionSection(Section):
    """Settings of precision."""

    compute: Literal["auto", "bf16", "fp32"] = Field(default="auto", description="type of matmuls in forward")
