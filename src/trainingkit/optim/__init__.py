"""By which update? Optimizers and learning-rate schedules, each a registry entry in a file of its own."""

from trainingkit.optim.registry import OPTIMIZERS as OPTIMIZERS
from trainingkit.optim.registry import SCHEDULES as SCHEDULES
from trainingkit.optim.registry import OptimizerSection as OptimizerSection
from trainingkit.optim.registry import ScheduleSection as ScheduleSection
