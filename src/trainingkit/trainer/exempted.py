"""A word for people whose model has nothing that a codec could carry: all of it travels in bf16."""

from __future__ import annotations

from torch import nn

from trainingkit.sync.contract import Sync
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.exempt import TINY_ELEMENTS, parameter_names, squeezed_names
from trainingkit.sync.listening import of_gradients

TEXT = (
    "The codec has nothing to squeeze in this model, so all of it travels in bf16: no trainable parameter outside "
    f"embeddings and the head has two dimensions and {TINY_ELEMENTS} elements."
)


def nothing_squeezed(sync: Sync, model: nn.Module) -> str | None:
    """The sentence to show; None where the codec carries something, or there is no codec.

    Args:
        sync: what was made for `model`.
        model: without DistributedDataParallel around it.
    """
    trainable = {name for parameter, name in parameter_names(model).items() if parameter.requires_grad}
    carried = squeezed_names(model) & trainable
    has_codec = of_gradients(sync) is not None or (isinstance(sync, EverySync) and sync.coded)
    return TEXT if has_codec and not carried else None
