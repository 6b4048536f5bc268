"""How are ascending indices written as bytes? One file per packing."""

from trainingkit.kernels.reference.packings.base import PACKINGS, Packing

__all__ = ["PACKINGS", "Packing"]
