"""A codec as text people can read and as an object code can hold: `selection|quantiser`, with `|packing` if needed.

parse("topk(0.05)|int4")  ->  topk(density=0.05, chunk=4096)|int4(block=64)|elias_fano

Where indices are sent and no packing is given, it is the smallest for one whole chunk; the text then names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainingkit.codec.grammar import bind, show, split_part
from trainingkit.codec.packings import PACKINGS, Packing, smallest
from trainingkit.codec.quantisers import QUANTISERS, Quantiser
from trainingkit.codec.selections import SELECTIONS, Selection
from trainingkit.core.errors import ConfigError
from trainingkit.core.registry import Registry
from trainingkit.core.section import check

EXPECTED = "'selection|quantiser' or 'selection|quantiser|packing', for example 'all|int4(block=64)'"


@dataclass(frozen=True)
class Spec:
    """One codec. Its text reads back to an equal spec.

    Args:
        selection, quantiser, packing: the three parts; no packing where no indices are sent.
        names: their registered names.
    """

    selection: Selection
    quantiser: Quantiser
    packing: Packing | None
    names: tuple[str, ...]

    def __str__(self) -> str:
        parts = [self.selection, self.quantiser, *([self.packing] if self.packing else [])]
        return "|".join(show(name, part) for name, part in zip(self.names, parts, strict=True))


def parse(text: str | Spec, *, field: str = "codec") -> Spec:
    """Read a spec; one that is read already is given back.

    Raises:
        ConfigError: not of this form, an unknown name (with the nearest), a setting that is unknown, missing or out of
            range, or a packing for a selection that sends no indices.
    """
    if isinstance(text, Spec):
        return text
    parts = text.split("|")
    if len(parts) not in (2, 3):
        raise ConfigError(
            "This is not a codec we can read.",
            field=field,
            found=repr(text),
            expected=EXPECTED,
            next_step="Put '|' between its parts; docs/recipes.md lists them.",
        )
    selection_name, selection = _entry(SELECTIONS, parts[0], field)
    quantiser_name, quantiser = _entry(QUANTISERS, parts[1], field)
    names = (selection_name, quantiser_name)
    if not selection.indexed:
        _refuse_packing(text, selection_name, parts[2:], field)
        return Spec(selection, quantiser, None, names)
    packing_name, packing = _entry(PACKINGS, parts[2] if parts[2:] else _default_packing(selection), field)
    return Spec(selection, quantiser, packing, (*names, packing_name))


def _entry(registry: Registry[Any], text: str, field: str) -> tuple[str, Any]:
    name, arguments = split_part(text, field=field)
    section = registry.get(name, field=field)
    return name, check(section, bind(section, arguments, field=f"{field}.{name}"), field=f"{field}.{name}")


def _default_packing(selection: Selection) -> str:
    chunk = selection.rows(selection.granule(1))[0]
    return smallest(chunk.keep, selection.index_range())


def _refuse_packing(text: str, selection: str, rest: list[str], field: str) -> None:
    if rest:
        raise ConfigError(
            f"The selection {selection!r} sends no indices, so there is nothing to pack.",
            field=field,
            found=repr(text),
            expected="two parts, for example 'all|int4(block=64)'",
            next_step=f"Remove '|{rest[0]}'.",
        )
