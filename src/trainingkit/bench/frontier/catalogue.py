"""All schemes by name: the references and the candidates."""

from __future__ import annotations

import functools

from trainingkit.bench.frontier.reference import REFERENCES
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest


@functools.cache
def catalogue() -> dict[str, Scheme]:
    """Every scheme by name, references first."""
    from trainingkit.bench.frontier.schemes import SCHEMES

    references = {scheme.name: scheme for scheme in REFERENCES.values()}
    return references | {scheme.name: scheme for scheme in SCHEMES if scheme.name not in references}


def scheme_of(name: str) -> Scheme:
    """The scheme of that name.

    Raises:
        ConfigError: there is none; the message lists all and the nearest.
    """
    schemes = catalogue()
    if name not in schemes:
        close = nearest(name, schemes)
        raise ConfigError(
            f"There is no scheme called {name!r}.",
            field="--schemes",
            found=repr(name),
            expected="one of " + ", ".join(schemes),
            next_step=f"Did you mean {close!r}?" if close else "Choose one of these.",
        )
    return schemes[name]
