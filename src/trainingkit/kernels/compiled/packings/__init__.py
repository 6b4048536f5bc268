"""How are ascending indices written as bytes, compiled? One file per packing."""

from trainingkit.kernels.compiled.packings.base import PACKINGS, Packing

__all__ = ["PACKINGS", "Packing"]
