"""Whether the sizes in a `config.json` can be those of a model; said before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainingkit.core.errors import ModelError

SIZES = (
    "hidden_size",
    "n_embd",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "n_inner",
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
    "patch_size",
    "image_size",
    "head_dim",
)
COUNTS = ("num_local_experts", "num_experts", "num_experts_per_tok", "shared_expert_intermediate_size")
MOST = 10**9


def check_sizes(config: Mapping[str, Any]) -> None:
    """Raise ModelError for a size that is no whole number in bounds, or that does not fit another one."""
    for names, least in ((SIZES, 1), (COUNTS, 0)):
        for name in names:
            value = config.get(name)
            if value is not None and not (type(value) is int and least <= value <= MOST):
                _refuse(name, repr(value), f"a whole number from {least} to {MOST:,}")
    depths = config.get("depths")
    if depths is not None and not (isinstance(depths, list) and all(type(d) is int and d > 0 for d in depths)):
        _refuse("depths", repr(depths), "a list of whole numbers")
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if heads and groups and heads % groups:
        _refuse("num_key_value_heads", str(groups), f"a divisor of the {heads} attention heads")
    experts = config.get("num_local_experts") or config.get("num_experts") or 0
    active = config.get("num_experts_per_tok") or 0
    if experts and not 1 <= active <= experts:
        _refuse("num_experts_per_tok", str(active or "nothing"), f"1 to {experts}, the number of experts")


def _refuse(name: str, found: str, expected: str) -> None:
    raise ModelError(
        "A size in the configuration cannot be used.",
        field=f"model.{name}",
        found=found,
        expected=expected,
        next_step="Mend it in config.json.",
    )
