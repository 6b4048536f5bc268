"""Whether a run goes on with the data that it was saved with, by the digest of their content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainingkit.core.datainfo import DataInfo

KEY = "data_sha256"
SHOWN = 12
"""Digits that are shown of a digest."""


def data_mark(data: DataInfo | None) -> dict[str, Any]:
    """What a snapshot keeps of the data; nothing where they are a script's own."""
    return {} if data is None else {KEY: data.sha256}


def told_of_data(saved: Mapping[str, Any], data: DataInfo | None) -> str | None:
    """What a person should know where a snapshot was made with other data; None where it was not, or nobody knows.

    Args:
        saved: this rank's state in the snapshot.
        data: with which the run goes on.
    """
    before = saved.get(KEY)
    if data is None or before in (None, data.sha256):
        return None
    return (
        f"The data are not those that the snapshot was made with: found SHA-256 {data.sha256[:SHOWN]}..., "
        f"expected {before[:SHOWN]}.... The run goes on at the same place in them; samples may come again or never."
    )
