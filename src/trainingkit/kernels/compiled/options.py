"""How every compiled function is built, and how one template becomes one driver per number format.

Numba keys its cache by the file, name and line of a function, not by what the function calls. So a driver's name
carries its format and a digest of this whole package: an edit, an upgrade or another format never meets a stale entry.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import njit

PLAIN: dict[str, Any] = {"nogil": True, "fastmath": False, "boundscheck": False, "error_model": "numpy", "_nrt": False}
"""Options of all functions: no GIL, no thread layer (callers slice the work), IEEE arithmetic as written, and no
allocation, since counting references to slices would cost more than the arithmetic: scratch memory is handed in.
"""

piece: Callable[..., Any] = njit(**PLAIN)
"""Decorator of the functions that drivers call; they are compiled into the driver."""

inlined: Callable[..., Any] = njit(forceinline=True, **PLAIN)
"""As `piece`, for what is called for every block or value: a call with arrays costs about as much as coding 64 values.
Not for more than that, since the caller is compiled with a copy of it.
"""


@functools.cache
def source_digest() -> str:
    """Digest over the sources of this package, 12 hex digits."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def specialise(template: Callable[..., Any], tag: str, **names: Any) -> FunctionType:
    """A copy of `template` under a name of its own, in which the global `names` have these values."""
    assert isinstance(template, FunctionType)
    name = f"{template.__name__}_{tag}"
    code = template.__code__.replace(co_name=name, co_qualname=name)
    copy = FunctionType(code, {**template.__globals__, **names}, name, template.__defaults__)
    copy.__module__ = template.__module__
    return copy


def driver(template: Callable[..., Any], tag: str, **names: Any) -> Callable[..., Any]:
    """Compile `template` with these globals; the machine code is cached on disk under the tag and the digest."""
    return njit(cache=True, **PLAIN)(specialise(template, f"{tag}_{source_digest()}", **names))
