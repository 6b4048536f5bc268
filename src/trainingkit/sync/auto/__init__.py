"""How hard to squeeze? The controller: the least lossy rung whose round still hides, found by forecast and trial."""

from trainingkit.sync.auto.ladder import LADDER as LADDER
from trainingkit.sync.auto.ladder import Rung as Rung
