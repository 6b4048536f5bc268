"""In which numbers? The compute type of forward, chosen by what the processor does fast."""

from trainingkit.precision.section import PrecisionSection as PrecisionSection
