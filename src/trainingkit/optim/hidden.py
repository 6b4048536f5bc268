"""Which parameters Muon takes: the weights between a network's input and its output.

After K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): matrices, and the filters of
convolutions, but no embedding, no head, no first convolution of a network that reads pixels or samples, no vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from trainingkit.models.anatomy import embeddings, head, parameter_ids

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Weights [out, in, ...]; those of transposed convolutions begin with `in` and are left to AdamW."""


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Trainable parameters with two dimensions, and weights of convolutions, that lie inside the network.

    Left out are embeddings, the head, the first convolution where there is no embedding, and single rows and columns.
    A tensor of three and more dimensions that is no convolution's weight (a table of positions, a stack of experts)
    is left out, too.
    """
    filters = {id(module.weight) for module in model.modules() if isinstance(module, CONVOLUTIONS)}
    outer = parameter_ids([*_inputs(model), *head(model)])
    return [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad
        and id(parameter) not in outer
        and (parameter.dim() == 2 or id(parameter) in filters)
        and min(parameter.flatten(1).shape) > 1
    ]


def _inputs(model: nn.Module) -> Sequence[nn.Module]:
    return embeddings(model) or [module for module in model.modules() if isinstance(module, CONVOLUTIONS)][:1]
