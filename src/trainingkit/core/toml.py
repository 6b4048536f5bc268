"""Recipes as TOML: `extends` chains, dotted overrides, and writing the resolved file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from trainingkit.core.errors import ConfigError

Table = dict[str, Any]
BUNDLED = "See `trainingkit train --help`, which tells of the bundled recipes."
REMEDY_PARENT = "Write a path that leads there from the file that extends it."


def load(path: Path, *, field: str = "recipe", remedy: str = BUNDLED, _seen: tuple[Path, ...] = ()) -> Table:
    """Read `path`; a top-level `extends = "other.toml"` is read first (relative to `path`), then overlaid.

    Args:
        field: the option or argument that named the file, for messages.
        remedy: what to do when there is no such file.

    Raises:
        ConfigError: missing or unreadable file, invalid TOML, or a circle of `extends`.
    """
    path = path.resolve()
    if path in _seen:
        circle = " -> ".join(p.name for p in (*_seen, path))
        raise ConfigError(
            "Recipes extend each other in a circle.",
            field="extends",
            found=circle,
            expected="a chain that ends",
            next_step="Remove one of these `extends` lines.",
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"This file cannot be read: {error.strerror}.",
            field=field,
            found=str(path),
            expected="a TOML file",
            next_step=remedy,
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            "This file is not valid TOML.",
            field=field,
            found=f"{path}: {error}",
            expected="TOML in UTF-8",
            next_step="Mend the line that is named.",
        ) from error
    parent = table.pop("extends", None)
    if parent is None:
        return table
    if not isinstance(parent, str):
        raise ConfigError(
            "A recipe extends one file.",
            field="extends",
            found=repr(parent),
            expected="a file name",
            next_step='Write it as text: extends = "other.toml".',
        )
    return overlay(load(path.parent / parent, field="extends", remedy=REMEDY_PARENT, _seen=(*_seen, path)), table)


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """Tables merge key by key; any other value of `above` wins. A table whose `kind` changes starts afresh."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            merged[key] = overlay(old, value)
        else:
            merged[key] = value
    return merged


def apply_overrides(table: Table, overrides: Iterable[str]) -> Table:
    """Lay `section.key=value` texts over a table. Values are TOML; what is not TOML is taken as a string.

    They are put together first, the later of two for one key winning, so their order does not matter otherwise: a
    setting that is given before the `kind` it belongs to is kept.

    Raises:
        ConfigError: no `=`, an empty name, or a name that goes through a value that is no table.
    """
    changes: Table = {}
    for text in overrides:
        keys, change = _override(text)
        _check_way(table, keys)
        for key in reversed(keys):
            change = {key: change}
        changes = _merge(changes, change)
    return overlay(table, changes)


def _override(text: str) -> tuple[list[str], Any]:
    name, equals, raw = text.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise ConfigError(
            "An override must name a setting and a value.",
            field="--set",
            found=repr(text),
            expected="section.key=value, for example optimizer.lr=0.001",
            next_step="Write both, with '=' between them.",
        )
    return keys, parse_value(raw)


def _check_way(table: Mapping[str, Any], keys: list[str]) -> None:
    place: Any = table
    for depth, key in enumerate(keys[:-1], start=1):
        place = place.get(key, {})
        if not isinstance(place, dict):
            raise ConfigError(
                f"{'.'.join(keys[:depth])!r} is a value, not a section with settings.",
                field=".".join(keys),
                found=repr(place),
                expected="section.key=value",
                next_step=f"Set it as a whole: --set {'.'.join(keys[:depth])}=...",
            )


def _merge(below: Table, above: Table) -> Table:
    """Tables key by key; any other value of `above` wins."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def parse_value(raw: str) -> Any:
    """The TOML value that `raw` spells, or `raw` itself as a string."""
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return raw


def dump(table: Mapping[str, Any]) -> str:
    """TOML text. TOML has no null: keys whose value is None are left out (their default is None)."""
    return tomli_w.dumps(_without_none(table))


def _without_none(table: Mapping[str, Any]) -> Table:
    return {k: _without_none(v) if isinstance(v, Mapping) else v for k, v in table.items() if v is not None}
