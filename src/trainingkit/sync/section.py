"""Settings of synchronisation. No torch here, so that a recipe can be checked without it."""

from __future__ import annotations

from pydantic import Field

from trainingkit.core.section import Section


class SyncSection(Section):
    """Settings of synchronisation."""

    bucket_mb: float = Field(default=2.0, gt=0, description="size of a gradient bucket in MB of fp32")
    timeout_s: float = Field(default=300.0, gt=0, description="deadline of one collective")
    join_s: float = Field(default=120.0, gt=0, description="how long to wait for all ranks at the start")
