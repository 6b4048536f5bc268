"""Which values are sent? One file per selection; an entry tells, without torch, how many of how many."""

from trainingkit.codec.selections.base import SELECTIONS, Rows, Selection

__all__ = ["SELECTIONS", "Rows", "Selection"]
