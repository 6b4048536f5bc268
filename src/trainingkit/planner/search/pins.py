"""What a person has already decided: `tp=8, recompute=full`. Other layouts are not looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.search.space import Space, layouts

Pins = tuple[tuple[str, str], ...]
NAMES = tuple(f.name for f in fields(Layout) if f.name not in ("shard_group", "codec", "every"))


def parse_pins(text: str, *, field: str = "--fix") -> Pins:
    """'tp=8, recompute=full' as pairs.

    Raises:
        ConfigError: no `=`, or a name that is no part of a layout.
    """
    pins = []
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in NAMES:
            close = nearest(name, NAMES)
            raise ConfigError(
                "This does not fix a part of a layout.",
                field=field,
                found=repr(part.strip()),
                expected="name=value with one of " + ", ".join(NAMES),
                next_step=f"Did you mean {close}=...?" if close else "Write for example tp=8,pp=4.",
            )
        pins.append((name, value.lower()))
    return tuple(pins)


def keeps(pins: Pins, layout: Layout) -> bool:
    """Whether a layout is as pinned."""
    return all(str(getattr(layout, name)).lower() == value for name, value in pins)


def explain_pins(job: Job, cluster: Cluster, space: Space, pins: Pins) -> ConfigError | None:
    """What is wrong with pins that leave no layout: the first that is impossible alone, with its nearest values."""
    every = list(layouts(job, cluster, space, Counter()))
    for name, value in pins:
        legal = sorted({getattr(layout, name) for layout in every})
        if every and value not in {str(one).lower() for one in legal}:
            words = ", ".join(str(one) for one in legal)
            return ConfigError(
                f"No legal layout has {name} = {value}.",
                field=f"--fix {name}",
                found=value,
                expected=f"one of {words}",
                next_step=f"The nearest that works: --fix {name}={_closest(value, legal)}",
            )
    return None


def _closest(value: str, legal: list[object]) -> object:
    if value.isdecimal() and all(isinstance(one, int) for one in legal):
        return min((one for one in legal if isinstance(one, int)), key=lambda one: abs(one - int(value)))
    return nearest(value, [str(one) for one in legal]) or legal[0]
