"""One decorator and one scan: a new entry of any kind is a new file in its room, and nothing else to edit.

A registry belongs to a package. Its first look-up imports every module of that package, so that each
`@registry.register("name")` in it has run. There is no list of names to keep.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries of one kind by name.

    Args:
        kind: the field's word for an entry, used in error messages, for example "data source".
        package: dotted name of the package whose modules register entries.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._scanned = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: keep the decorated object under `name`. A name that is taken is our own bug."""

        def keep(entry: T) -> T:
            assert name not in self._entries, f"{self.kind} {name!r} is registered twice"
            self._entries[name] = entry
            return entry

        return keep

    def names(self) -> list[str]:
        """All names, sorted."""
        self._scan()
        return sorted(self._entries)

    def get(self, name: str, *, field: str | None = None) -> T:
        """The entry called `name`.

        Raises:
            ConfigError: there is none; the message lists all and the nearest.
        """
        self._scan()
        if name not in self._entries:
            close = nearest(name, self._entries)
            raise ConfigError(
                f"There is no {self.kind} called {name!r}.",
                field=field,
                found=repr(name),
                expected="one of " + ", ".join(sorted(self._entries)),
                next_step=f"Did you mean {close!r}?" if close else "Choose one of these.",
            )
        return self._entries[name]

    def _scan(self) -> None:
        if self._scanned:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__, prefix=f"{self.package}."):
            importlib.import_module(module.name)
        self._scanned = True
