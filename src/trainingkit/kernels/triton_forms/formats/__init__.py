"""How are kept values written as bytes, in Triton? One file per number format."""

from trainingkit.kernels.triton_forms.formats.base import FORMATS, Format

__all__ = ["FORMATS", "Format"]
