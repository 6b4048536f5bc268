"""What machines are these? Where a rank stands, how workers start and meet, what a host can do."""

from trainingkit.cluster.place import Place as Place
from trainingkit.cluster.place import find_place as find_place
