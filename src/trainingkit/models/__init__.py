"""What is trained? Model kinds, each a registry entry that builds a module from a recipe and the facts of the data."""

from trainingkit.models.registry import MODELS as MODELS
from trainingkit.models.registry import ModelSection as ModelSection
