"""How are kept values written as bytes, compiled? One file per number format; drivers are specialised on an entry."""

from trainingkit.kernels.compiled.formats.base import FORMATS, Format

__all__ = ["FORMATS", "Format"]
