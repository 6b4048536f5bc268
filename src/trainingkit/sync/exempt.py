"""Which parameters are worth squeezing. Matrices are; what is small or delicate travels in bf16.

Block scales hurt one-dimensional scales ten to twenty times more than weights (LoongForge issue 231), and rows of
embeddings and heads see few gradients; together they are a few per cent of a model.
"""

from __future__ import annotations

import torch
from torch import nn

from trainingkit.models.anatomy import EMBEDDINGS, embeddings, head, parameter_ids

TINY_ELEMENTS = 4096
CARRIED = (torch.float32, torch.bfloat16, torch.float16)
COMPILED = "_orig_mod."
"""What `torch.compile` puts into the names of parameters."""


def squeezed_names(model: nn.Module) -> set[str]:
    """Names of the parameters that the codec carries: two and more dimensions, not tiny, no embedding, no head."""
    exempt = parameter_ids([*embeddings(model), *head(model)])
    return {
        name
        for parameter, name in parameter_names(model).items()
        if parameter.dim() >= 2 and parameter.numel() >= TINY_ELEMENTS and id(parameter) not in exempt
    }


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Names of all parameters, the same whether the model is compiled or not; of a tied one, the first."""
    return {parameter: name.replace(COMPILED, "") for name, parameter in model.named_parameters()}


def sparse_names(model: nn.Module) -> list[str]:
    """Embeddings whose gradients are sparse; DDP's buckets cannot be squeezed then."""
    found = ((name, m) for name, m in model.named_modules() if isinstance(m, EMBEDDINGS))
    return [name for name, module in found if module.sparse and module.weight.requires_grad]


def odd_names(model: nn.Module) -> list[str]:
    """Trainable parameters in numbers that fp32 cannot hold: complex, or float64."""
    return [
        f"{name} ({str(parameter.dtype).removeprefix('torch.')})"
        for parameter, name in parameter_names(model).items()
        if parameter.requires_grad and parameter.dtype not in CARRIED
    ]
