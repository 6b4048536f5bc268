"""How many bytes a message has, before there is one. Torch-free, for planners and for buffers."""

from __future__ import annotations

from trainingkit.codec.layout import runs
from trainingkit.codec.spec import Spec, parse


def message_bytes(spec: str | Spec, n: int) -> int:
    """Exact bytes of the message of `n` values. The frame that an exchange puts around it is not in it.

    Raises:
        ConfigError: the spec cannot be read.
    """
    found = runs(parse(spec), n)
    return found[-1].end_byte if found else 0


def granule(spec: str | Spec) -> int:
    """A tensor cut at multiples of this many values has the messages of its parts, in a row, as its message."""
    parsed = parse(spec)
    return parsed.selection.granule(parsed.quantiser.scale_block())
