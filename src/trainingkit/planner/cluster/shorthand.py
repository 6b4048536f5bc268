"""A cluster in one word: "h100:16x8" is 16 hosts of 8 H100 each, on the links that are usual for them."""

from __future__ import annotations

import re

from trainingkit.planner.cluster.loading import cluster_of
from trainingkit.planner.cluster.spec import Cluster

_WORD = re.compile(r"([A-Za-z0-9()?-]+):(\d+)x(\d+)")


def from_shorthand(text: str) -> Cluster | None:
    """The cluster, or None where the text is not of this form.

    Raises:
        ConfigError: the GPU is not known, or a number is zero.
    """
    match = _WORD.fullmatch(text)
    if match is None:
        return None
    return cluster_of({"gpu": match[1], "nodes": int(match[2]), "per_node": int(match[3])})
