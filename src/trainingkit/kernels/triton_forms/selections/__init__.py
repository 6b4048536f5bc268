"""Which values are sent, in Triton? One file per selection, with its kernels and their launch."""

from trainingkit.kernels.triton_forms.selections.base import SELECTIONS, Selection

__all__ = ["SELECTIONS", "Selection"]
