"""Where a network takes its input and gives its output: the modules that codecs and optimizers treat differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def embeddings(model: nn.Module) -> Sequence[nn.Module]:
    """All tables of rows."""
    return [module for module in model.modules() if isinstance(module, EMBEDDINGS)]


def head(model: nn.Module) -> Sequence[nn.Module]:
    """transformers say which module is the head; elsewhere the last linear layer is taken for it, if there is one."""
    get: Any = getattr(model, "get_output_embeddings", None)
    named = get() if callable(get) else None
    if isinstance(named, nn.Module):
        return [named]
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1:]


def parameter_ids(modules: Sequence[nn.Module]) -> set[int]:
    """`id` of each of their parameters."""
    return {id(parameter) for module in modules for parameter in module.parameters()}
