"""How are ascending indices written as bytes, in Triton? One file per packing."""

from trainingkit.kernels.triton_forms.packings.base import PACKINGS, Packing

__all__ = ["PACKINGS", "Packing"]
