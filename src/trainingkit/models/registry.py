"""The registry of model kinds, and what an entry must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.registry import Registry
from trainingkit.core.section import Section

if TYPE_CHECKING:
    from torch import nn


class ModelSection(Section):
    """An entry of MODELS: its settings, and `build`.

    The module takes a batch as keyword arguments; what it returns has `loss`, the mean loss as a 0-dim tensor.
    """

    def build(self, info: DataInfo) -> nn.Module:
        """A fresh module with fp32 parameters, initialised from torch's global generator."""
        raise NotImplementedError(type(self).__name__)

    def parameter_count(self, info: DataInfo) -> int | None:
        """Parameters, known without building it; None where that is not possible."""
        raise NotImplementedError(type(self).__name__)


MODELS: Registry[Any] = Registry("model", "trainingkit.models.kinds")
