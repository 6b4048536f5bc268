"""Which parameters travel together: layers dealt into fragments, fragments cut into parcels of a wanted size.

Layers go round-robin to fragments, so that each has layers of every depth (Streaming DiLoCo, arXiv:2501.18512).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainingkit.core.errors import ConfigError


def layer_of(name: str) -> str:
    """The layer that a parameter belongs to: its name up to the first number, or its module's where there is none.

    `model.layers.3.mlp.up.weight` is of `model.layers.3`, `lm_head.weight` of `lm_head`.
    """
    parts = name.split(".")
    for index, part in enumerate(parts[:-1]):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return ".".join(parts[:-1])


def deal(names: Sequence[str], fragments: int) -> list[list[str]]:
    """The names of each fragment, in the model's order.

    Raises:
        ConfigError: there are fewer layers than fragments.
    """
    layers = list(dict.fromkeys(layer_of(name) for name in names))
    if len(layers) < fragments:
        raise ConfigError(
            "The model has fewer layers than fragments are wanted.",
            field="every.fragments",
            found=f"{fragments} fragments, {len(layers)} layers",
            expected=f"at most {len(layers)}",
            next_step="Lower fragments.",
        )
    turn = {layer: index % fragments for index, layer in enumerate(layers)}
    dealt: list[list[str]] = [[] for _ in range(fragments)]
    for name in names:
        dealt[turn[layer_of(name)]].append(name)
    return dealt


def cut(names: Sequence[str], sizes: Mapping[str, int], parcel_bytes: int) -> list[list[str]]:
    """Consecutive names, together about `parcel_bytes` of fp32; a parameter is never cut.

    Args:
        sizes: elements of each parameter by name.
    """
    parcels: list[list[str]] = []
    filled = parcel_bytes
    for name in names:
        if filled >= parcel_bytes:
            parcels.append([])
            filled = 0
        parcels[-1].append(name)
        filled += 4 * sizes[name]
    return parcels
