"""A nested state with tensors in it as named tensors and plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from trainingkit.core.errors import CheckpointError

PLACE = "$tensor"
"""Key of the mapping that stands where a tensor was."""


def detach_tensors(state: Any, prefix: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a state by name (`prefix/key/key/...`), and the state with their names in their place.

    Args:
        state: dicts, lists and tuples over plain values and tensors; keys are texts without the meaning of PLACE.

    Raises:
        CheckpointError: two tensors would get one name, because of a key with a slash or one that is no text.
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            if name in tensors:
                raise CheckpointError(
                    "Two tensors of a state have the same name.",
                    field=name,
                    found="keys that read alike when they are joined by '/'",
                    expected="another path for each tensor",
                    next_step="Rename a key.",
                )
            tensors[name] = value
            return {PLACE: name}
        if isinstance(value, Mapping):
            return {key: walk(item, f"{name}/{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([walk(item, f"{name}/{index}") for index, item in enumerate(value)])
        return value

    return tensors, walk(state, prefix)


def attach_tensors(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `detach_tensors`."""
    if isinstance(plain, Mapping):
        if set(plain) == {PLACE}:
            return tensors[plain[PLACE]]
        return {key: attach_tensors(item, tensors) for key, item in plain.items()}
    if isinstance(plain, (list, tuple)):
        return type(plain)([attach_tensors(item, tensors) for item in plain])
    return plain
