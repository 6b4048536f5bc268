"""In which numbers are kept values sent? One file per quantiser; an entry tells its bytes without torch."""

from trainingkit.codec.quantisers.base import QUANTISERS, Quantiser

__all__ = ["QUANTISERS", "Quantiser"]
