"""What do the messages mean? Plain tensor code for each selection, number format and index packing: the oracle."""

from trainingkit.kernels.reference.formats import FORMATS
from trainingkit.kernels.reference.packings import PACKINGS
from trainingkit.kernels.reference.rows import decode, encode
from trainingkit.kernels.reference.selections import SELECTIONS

__all__ = ["FORMATS", "PACKINGS", "SELECTIONS", "decode", "encode"]
