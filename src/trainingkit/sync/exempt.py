"""Which parameters are worth squeezing. Matrices are; what is small or delicate travels in bf16.

Block scales hurt one-dimensional scales ten to twenty times more than weights (LoongForge issue 231), and rows of
embeddings and heads see few gradients; together they are a few per cent of a model.
"""

from __future__ import annotations

from typing import Any

from torch import nn

TINY_ELEMENTS = 4096


def squeezed_names(model: nn.Module) -> set[str]:
    """Names of the parameters that the codec carries: two and more dimensions, not tiny, no embedding, no head."""
    exempt = _embeddings(model) | _head(model)
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() >= 2 and parameter.numel() >= TINY_ELEMENTS and id(parameter) not in exempt
    }


def sparse_names(model: nn.Module) -> list[str]:
    """Embeddings whose gradients are sparse; DDP's buckets cannot be squeezed then."""
    return [name for name, module in model.named_modules() if getattr(module, "sparse", False) is True]


def _embeddings(model: nn.Module) -> set[int]:
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return {id(p) for module in model.modules() if isinstance(module, kinds) for p in module.parameters()}


def _head(model: nn.Module) -> set[int]:
    """transformers say which module is the head; elsewhere the last linear layer is taken for it."""
    get: Any = getattr(model, "get_output_embeddings", None)
    head = get() if callable(get) else None
    if head is None:
        head = next((m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear)), None)
    return {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
