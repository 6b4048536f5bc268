"""One section of a recipe: a frozen, strict pydantic model; and its errors in our words.

Each room defines the sections it reads. A section whose `kind` picks a registry entry is declared as a
plain table in the recipe and resolved by the room (`choose`), so that a new kind is one new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.core.registry import Registry


class Section(BaseModel):
    """Base of all recipe sections: frozen; an unknown key is refused; numbers are not guessed from text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


S = TypeVar("S", bound=BaseModel)
SEE = "docs/recipes.md lists every setting."


def check(section: type[S], values: Mapping[str, Any], *, field: str = "", options: bool = False) -> S:
    """Validate `values` as `section`.

    Args:
        field: dotted name of the section, put before each field in messages.
        options: the values can also be given with `--set`, which the advice then names.

    Raises:
        ConfigError: the first problem, with field, found, expected, and the nearest valid name for an unknown key. A
            ConfigError that a validator found is told as it is.
    """
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(section, error, field, options=options) from None


def choose(registry: Registry[Any], values: Mapping[str, Any], *, field: str) -> Any:
    """Validate a recipe's table by the registry entry (a Section class) that its `kind` names."""
    rest = dict(values)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(
            f"The section [{field}] does not say which {registry.kind} it is.",
            field=f"{field}.kind",
            found=repr(kind),
            expected="one of " + ", ".join(registry.names()),
            next_step=f'Add a line kind = "..." to [{field}].',
        )
    return check(registry.get(kind, field=f"{field}.kind"), rest, field=field, options=True)


def _explain(section: type[BaseModel], error: ValidationError, field: str, *, options: bool) -> ConfigError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    dotted = ".".join([field, *path] if field else path)
    more = error.error_count() - 1
    also = f" ({more} more after this one)" if more else ""
    cause = _told_within(first)
    if cause is not None:
        return ConfigError(
            f"{cause.problem}{also}",
            field=cause.field or dotted,
            found=cause.found,
            expected=cause.expected,
            next_step=cause.next_step,
        )
    if first["type"] == "extra_forbidden":
        owner = _model_at(section, path[:-1])
        valid = list(owner.model_fields) if owner else []
        close = nearest(path[-1], valid)
        return ConfigError(
            f"There is no setting called {dotted!r}.{also}",
            field=dotted,
            found=repr(path[-1]),
            expected="one of " + ", ".join(sorted(valid)) if valid else "no keys here",
            next_step=f"Did you mean {close!r}?" if close else "Remove it, or see docs/recipes.md.",
        )
    if first["type"] == "missing":
        return ConfigError(
            f"A setting is missing.{also}",
            field=dotted,
            found="nothing",
            expected=_expectation(section, path),
            next_step=f"Add it, for example with --set {dotted}=..." if options else f"Give it a value; {SEE}",
        )
    return ConfigError(
        f"A setting has a value that cannot be used.{also}",
        field=dotted,
        found=repr(first["input"]),
        expected=first["msg"].removeprefix("Input should be ").removeprefix("Value error, "),
        next_step=f"Change it; {SEE}",
    )


def _told_within(details: Mapping[str, Any]) -> ConfigError | None:
    """The ConfigError behind a validator's ValueError, where there is one."""
    cause = getattr(details.get("ctx", {}).get("error"), "__cause__", None)
    return cause if isinstance(cause, ConfigError) else None


def _model_at(section: type[BaseModel], path: list[str]) -> type[BaseModel] | None:
    """The section that `path` leads to; None where it leads through anything else."""
    model: Any = section
    for part in path:
        info = model.model_fields.get(part)
        model = info.annotation if info else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
    return model


def _expectation(section: type[BaseModel], path: list[str]) -> str:
    owner = _model_at(section, path[:-1])
    info = owner.model_fields.get(path[-1]) if owner else None
    return info.description if info is not None and info.description else "a value"
