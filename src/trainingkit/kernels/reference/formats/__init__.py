"""How are kept values written as bytes? One file per number format, each exact to undo."""

from trainingkit.kernels.reference.formats.base import FORMATS, Format

__all__ = ["FORMATS", "Format"]
