"""What if something dies? Snapshots that are whole or not there: tensors in safetensors, the rest in JSON.

`Snapshots` writes them while training goes on, `newest_good` finds the one to continue from, `load` reads it back.
"""

from trainingkit.recovery.findings import Found, find, newest_good
from trainingkit.recovery.modelstate import restore_training, training_tensors
from trainingkit.recovery.reading import load, load_new, read_shared
from trainingkit.recovery.snapshots import Snapshots
from trainingkit.recovery.treestate import attach_tensors, detach_tensors

__all__ = [
    "Found",
    "Snapshots",
    "attach_tensors",
    "detach_tensors",
    "find",
    "load",
    "load_new",
    "newest_good",
    "read_shared",
    "restore_training",
    "training_tensors",
]
