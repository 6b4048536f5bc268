"""The text form of one part of a spec: `name`, `name(value)` or `name(value, key=value)`."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from trainingkit.core.errors import ConfigError

_PART = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*(?:\(([^()]*)\))?\s*")


def split_part(text: str, *, field: str) -> tuple[str, list[str]]:
    """The name and the arguments, as written.

    Raises:
        ConfigError: the text has another form.
    """
    match = _PART.fullmatch(text)
    if match is None:
        raise ConfigError(
            "This part of a codec cannot be read.",
            field=field,
            found=repr(text),
            expected="name, name(value) or name(key=value), for example int4(block=64)",
            next_step="Look for a missing parenthesis or a stray character.",
        )
    inside = (match[2] or "").strip()
    return match[1], [argument.strip() for argument in inside.split(",")] if inside else []


def bind(section: type[BaseModel], arguments: list[str], *, field: str) -> dict[str, Any]:
    """Arguments by the name of the setting; those without a name go by the order of the settings.

    Raises:
        ConfigError: too many values, a value without a name after one with a name, or a setting given twice.
    """
    names, values = list(section.model_fields), dict[str, Any]()
    for position, argument in enumerate(arguments):
        key, equals, raw = (text.strip() for text in argument.partition("="))
        if not equals:
            in_order = position < len(names) and names[:position] == list(values)
            if not in_order:
                raise _misplaced(argument, names, field)
            key, raw = names[position], key
        if key in values:
            raise ConfigError(
                "A setting of a codec is given twice.",
                field=f"{field}.{key}",
                found=repr(argument),
                expected="each setting once",
                next_step="Remove one of them.",
            )
        values[key] = _value(raw)
    return values


def show(name: str, section: BaseModel) -> str:
    """The text that `split_part` and `bind` read back: all settings by name."""
    inside = ", ".join(f"{key}={value}" for key, value in section.model_dump().items())
    return f"{name}({inside})" if inside else name


def _value(raw: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(raw)
        except ValueError:
            continue
    return raw


def _misplaced(argument: str, names: list[str], field: str) -> ConfigError:
    return ConfigError(
        "A value has no place in this part of a codec.",
        field=field,
        found=repr(argument),
        expected="in this order, or by name: " + ", ".join(names) if names else "no settings",
        next_step="Give it a name, or remove it.",
    )
