"""Training apart as text: `every(H, ...)|codec`, `every(H, ...)|none` for the fp32 wire, or the name of a preset.

parse_every("every(30)|topk(0.0156)|int2")  ->  every(30)|topk(density=0.0156, chunk=4096)|int2(block=64)|elias_fano

`every(H)` alone travels in 4 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainingkit.codec import Spec, parse
from trainingkit.codec.grammar import bind, split_part
from trainingkit.codec.selections import SELECTIONS
from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.core.section import check
from trainingkit.exchange import EXCHANGES
from trainingkit.sync.every.presets import PRESETS
from trainingkit.sync.every.settings import AUTO, Every

NAME = "every"
DENSE = "none"
ALONE = "all|int4"
WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class EverySpec:
    """Settings, and what carries the matrices; without a codec everything travels in fp32."""

    every: Every
    codec: Spec | None

    def __str__(self) -> str:
        return f"{_show(self.every)}|{self.codec if self.codec is not None else DENSE}"


def trains_apart(text: str, *, field: str = "codec") -> bool:
    """Whether a text is `every(...)` or a preset; other texts are a codec's.

    Raises:
        ConfigError: it is neither, but nearly.
    """
    name = text.partition("|")[0].partition("(")[0].strip()
    if name == NAME or text.strip() in PRESETS.names():
        return True
    if name in PRESETS.names():
        raise ConfigError(
            f"The preset {name!r} stands alone: its settings and its codec are its own.",
            field=field,
            found=repr(text),
            expected=repr(name),
            next_step=f"Write what it stands for and change that: {PRESETS.get(name)()!r}",
        )
    known = [*SELECTIONS.names(), *([] if "|" in text else [DENSE, "auto"])]
    meant = nearest(name, [NAME, *PRESETS.names(), *known])
    if name in known or meant is None or meant in known:
        return False
    raise ConfigError(
        f"There is no way to synchronise called {name!r}.",
        field=field,
        found=repr(text),
        expected="a codec, every(H)|codec, or one of " + ", ".join(PRESETS.names()),
        next_step=f"Did you mean {meant!r}?",
    )


def parse_every(text: str | EverySpec, *, field: str = "codec") -> EverySpec:
    """Read a text for which `trains_apart` is true.

    Raises:
        ConfigError: a setting or an exchange that is unknown (with the nearest), missing, out of range or does not fit
            the others; or a codec that cannot be read.
    """
    if isinstance(text, EverySpec):
        return text
    if text.strip() in PRESETS.names():
        text = PRESETS.get(text.strip())()
    head, _, rest = text.partition("|")
    name, arguments = split_part(head, field=field)
    assert name == NAME, "callers ask `trains_apart` first"
    values = bind(Every, arguments, field=f"{field}.{NAME}")
    every = check(Every, {key: _word(value) for key, value in values.items()}, field=f"{field}.{NAME}")
    if every.exchange != AUTO:
        EXCHANGES.get(every.exchange, field=f"{field}.{NAME}.exchange")
    rest = rest.strip() or ALONE
    return EverySpec(every, None if rest == DENSE else parse(rest, field=field))


def _word(value: Any) -> Any:
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value


def _show(every: Every) -> str:
    """The settings that are not the defaults; the steps without their name."""
    given = every.model_dump(exclude_defaults=True, exclude={"steps"})
    texts = [str(every.steps), *(f"{key}={str(value).lower()}" for key, value in given.items())]
    return f"{NAME}({', '.join(texts)})"
