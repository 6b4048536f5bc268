"""Published settings of training apart under the names of their papers: one file each, with what differs here."""

from collections.abc import Callable

from trainingkit.core.registry import Registry

PRESETS: Registry[Callable[[], str]] = Registry("preset", "trainingkit.sync.every.presets")
"""Name -> the text that it stands for."""
