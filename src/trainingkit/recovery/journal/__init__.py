"""How does the last completed step come back? Each step's agreed messages are kept in checksummed files, and replayed.

`JournalWriter` appends them off the step's path, `scan` reads a file up to its last whole record, `cover` says which
steps after a snapshot are complete. What a record means is known to `trainer.journalling` and `trainer.replaying`.
"""

from trainingkit.recovery.journal.cover import Base, Cover, check_reaches, cover, until
from trainingkit.recovery.journal.delta import differing, patched
from trainingkit.recovery.journal.segments import Entry, Origin, Scan, Slot, scan, slots
from trainingkit.recovery.journal.setback import Setback, set_back
from trainingkit.recovery.journal.steps import Step, row_name
from trainingkit.recovery.journal.survey import MARK, Lead, Survey, survey
from trainingkit.recovery.journal.writer import JournalWriter

__all__ = [
    "MARK",
    "Base",
    "Cover",
    "Entry",
    "JournalWriter",
    "Lead",
    "Origin",
    "Scan",
    "Setback",
    "Slot",
    "Step",
    "Survey",
    "check_reaches",
    "cover",
    "differing",
    "patched",
    "row_name",
    "scan",
    "set_back",
    "slots",
    "survey",
    "until",
]
