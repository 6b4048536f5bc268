"""What does the run look like? One file per figure; each builds a `Figure` (plotly traces as plain dicts) from numbers.

Nothing here knows of HTML or of the page; `Figure.data` and `Figure.layout` are JSON.
"""

from trainingkit.report.figures.bars import phases_over_steps
from trainingkit.report.figures.loss import loss_against_step, loss_against_time
from trainingkit.report.figures.ranks import phases_per_rank
from trainingkit.report.figures.style import PHASE_COLOURS, Figure, phase_colour
from trainingkit.report.figures.throughput import bytes_per_step, tokens_per_second

__all__ = [
    "PHASE_COLOURS",
    "Figure",
    "bytes_per_step",
    "loss_against_step",
    "loss_against_time",
    "phase_colour",
    "phases_over_steps",
    "phases_per_rank",
    "tokens_per_second",
]
