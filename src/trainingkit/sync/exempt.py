"""Which parameters are worth squeezing. Matrices are; what is small or delicate travels in bf16.

Block scales hurt one-dimensional scales ten to twenty times more than weights (LoongForge issue 231), and rows of
embeddings and heads see few gradients; together they are a few per cent of a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TINY_ELEMENTS = 4096
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
CARRIED = (torch.float32, torch.bfloat16, torch.float16)
COMPILED = "_orig_mod."
"""What `torch.compile` puts into the names of parameters."""


def squeezed_names(model: nn.Module) -> set[str]:
    """Names of the parameters that the codec carries: two and more dimensions, not tiny, no embedding, no head."""
    exempt = _embeddings(model) | _head(model)
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


def _embeddings(model: nn.Module) -> set[int]:
    return {id(p) for module in model.modules() if isinstance(module, EMBEDDINGS) for p in module.parameters()}


def _head(model: nn.Module) -> set[int]:
    """transformers say which module is the head; elsewhere the last linear layer is taken for it."""
    get: Any = getattr(model, "get_output_embeddings", None)
    head = get() if callable(get) else None
    if head is None:
        head = next((m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear)), None)
    return {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
