"""How are the indices of kept values written? One file per packing; an entry tells its bytes without torch."""

from trainingkit.codec.packings.base import PACKINGS, Packing, smallest

__all__ = ["PACKINGS", "Packing", "smallest"]
