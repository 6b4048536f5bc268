"""In which order do pipeline stages work, and how long does that take? An event simulator over entries of a registry.

`makespan` gives the seconds of all micro-batches; `simulate` the start and end of every piece of work.
"""

from trainingkit.planner.schedule.makespan import makespan
from trainingkit.planner.schedule.registry import SCHEDULES, Schedule, Work
from trainingkit.planner.schedule.simulate import Event, PipeCosts, simulate

__all__ = ["SCHEDULES", "Event", "PipeCosts", "Schedule", "Work", "makespan", "simulate"]
