"""State that changes little from step to step: only what differs from the step before is written.

A difference is {"set": {...}, "in": {...}}: values to take, and differences of nested mappings that go on under their
name. A mapping that lost a name is written whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

State = Mapping[str, Any]


def differing(before: State, now: State) -> dict[str, Any]:
    """What to write, so that `patched(before, ...)` equals `now`. All names are text.

    The top level must not lose a name: it is a fixed set of parts.
    """
    assert before.keys() <= now.keys()
    taken: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for name, value in now.items():
        old = before.get(name, _NOTHING)
        if type(old) is type(value) and old == value:
            continue
        if _goes_on(old, value):
            nested[name] = differing(old, value)
        else:
            taken[name] = value
    return {key: part for key, part in (("set", taken), ("in", nested)) if part}


def patched(before: State, difference: State) -> dict[str, Any]:
    """The state after a difference; `before` stays as it is."""
    state = {**before, **difference.get("set", {})}
    for name, inner in difference.get("in", {}).items():
        state[name] = patched(state[name], inner)
    return state


_NOTHING = object()


def _goes_on(old: Any, value: Any) -> bool:
    both = isinstance(old, dict) and isinstance(value, dict)
    return both and old.keys() <= value.keys() and all(type(name) is str for name in value)
