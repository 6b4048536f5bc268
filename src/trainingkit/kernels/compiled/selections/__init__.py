"""Which values does a message keep, compiled? One file per selection with the templates of its two drivers."""

from trainingkit.kernels.compiled.selections.base import SELECTIONS, Drivers

__all__ = ["SELECTIONS", "Drivers"]
