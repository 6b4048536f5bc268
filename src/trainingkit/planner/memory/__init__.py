"""How much memory does the fullest rank need? Parts by formula, and a bar; a plan fits when its upper end does."""

from trainingkit.planner.memory.rank import Memory, peak_memory, stage_memory

__all__ = ["Memory", "peak_memory", "stage_memory"]
