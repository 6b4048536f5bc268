"""What is to be trained? Shapes of decoders, encoders, ViTs and ResNets, with parameters and flops counted by formula.

`find_model` takes a preset's name, a Hugging Face `config.json`, or a module that carries such a config.
"""

from trainingkit.planner.models.convnet import ConvNet
from trainingkit.planner.models.finding import find_model
from trainingkit.planner.models.presets import preset_names
from trainingkit.planner.models.transformer import Transformer

Model = Transformer | ConvNet

__all__ = ["ConvNet", "Model", "Transformer", "find_model", "preset_names"]
