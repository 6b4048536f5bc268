"""In which numbers? The compute type of forward, chosen by what the processor does fast."""

from trainingkit.precision.compute import PrecisionSection as PrecisionSection
from trainingkit.precision.compute import choose_compute as choose_compute
from trainingkit.precision.compute import forward_context as forward_context
