"""A Hugging Face `config.json` as a shape. Each `model_type` is one small function; the file is read, never run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainingkit.core.errors import ModelError
from trainingkit.core.nearest import nearest
from trainingkit.planner.models.checking import check_sizes
from trainingkit.planner.models.convnet import DEPTHS, ConvNet
from trainingkit.planner.models.transformer import Transformer

Config = Mapping[str, Any]
READERS: dict[str, Callable[[str, Config], Transformer | ConvNet]] = {}


def reads(*kinds: str) -> Callable[[Callable[[str, Config], Any]], Callable[[str, Config], Any]]:
    """Decorator: the function reads configs of these model types."""

    def keep(function: Callable[[str, Config], Any]) -> Callable[[str, Config], Any]:
        READERS.update(dict.fromkeys(kinds, function))
        return function

    return keep


def from_config(name: str, config: Config) -> Transformer | ConvNet:
    """The shape that a config describes.

    Raises:
        ModelError: a model type that is not known, or a size that is missing or cannot be used.
    """
    kind = str(config.get("model_type", ""))
    reader = READERS.get(kind)
    if reader is None:
        close = nearest(kind, READERS)
        raise ModelError(
            "This kind of model is not known to the planner.",
            field="model.model_type",
            found=repr(kind),
            expected="one of " + ", ".join(sorted(READERS)),
            next_step=f"Did you mean {close!r}?" if close else "Describe its shape with one of these types.",
        )
    check_sizes(config)
    try:
        return reader(name, config)
    except KeyError as error:
        raise ModelError(
            "The configuration lacks a size.",
            field=f"model.{error.args[0]}",
            found="nothing",
            expected="a whole number",
            next_step="Add it to config.json.",
        ) from error


@reads("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe")
def _gated(name: str, c: Config) -> Transformer:
    kind = c["model_type"]
    experts = int(c.get("num_local_experts") or c.get("num_experts") or 0)
    ffn = c["moe_intermediate_size"] if "moe_intermediate_size" in c else c["intermediate_size"]
    size = int(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
    return Transformer(
        name=name,
        family="decoder",
        layers=c["num_hidden_layers"],
        hidden=c["hidden_size"],
        ffn=ffn,
        heads=c["num_attention_heads"],
        kv_heads=c.get("num_key_value_heads") or c["num_attention_heads"],
        head_dim=size,
        vocab=c["vocab_size"],
        seq=min(int(c.get("max_position_embeddings") or 2048), 8192),
        gated=True,
        tied=bool(c.get("tie_word_embeddings", False)),
        qkv_bias=kind in ("qwen2", "qwen2_moe"),
        rms=True,
        experts=experts,
        experts_per_token=int(c.get("num_experts_per_tok") or 0) if experts else 0,
        shared_ffn=int(c.get("shared_expert_intermediate_size") or 0) if experts else 0,
        other_params=_head_norms(c, size) + _shared_gates(c),
    )


def _head_norms(c: Config, size: int) -> int:
    """Qwen3 normalises queries and keys, head by head."""
    return 2 * size * c["num_hidden_layers"] if c["model_type"].startswith("qwen3") else 0


def _shared_gates(c: Config) -> int:
    return c["hidden_size"] * c["num_hidden_layers"] if c.get("shared_expert_intermediate_size") else 0


@reads("gpt2")
def _gpt2(name: str, c: Config) -> Transformer:
    return Transformer(
        name=name,
        family="decoder",
        layers=c["n_layer"],
        hidden=c["n_embd"],
        ffn=c.get("n_inner") or 4 * c["n_embd"],
        heads=c["n_head"],
        kv_heads=c["n_head"],
        vocab=c["vocab_size"],
        seq=c["n_positions"],
        positions=c["n_positions"],
        tied=bool(c.get("tie_word_embeddings", True)),
        bias=True,
        dropout=True,
    )


@reads("gpt_neox")
def _gpt_neox(name: str, c: Config) -> Transformer:
    return Transformer(
        name=name,
        family="decoder",
        layers=c["num_hidden_layers"],
        hidden=c["hidden_size"],
        ffn=c["intermediate_size"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_attention_heads"],
        vocab=c["vocab_size"],
        seq=c.get("max_position_embeddings", 2048),
        tied=bool(c.get("tie_word_embeddings", False)),
        bias=bool(c.get("attention_bias", True)),
    )


@reads("bert", "roberta")
def _bert(name: str, c: Config) -> Transformer:
    hidden = c["hidden_size"]
    types = c.get("type_vocab_size", 2) * hidden
    return Transformer(
        name=name,
        family="encoder",
        layers=c["num_hidden_layers"],
        hidden=hidden,
        ffn=c["intermediate_size"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_attention_heads"],
        vocab=c["vocab_size"],
        seq=c["max_position_embeddings"],
        positions=c["max_position_embeddings"],
        tied=True,
        bias=True,
        dropout=True,
        other_params=types + hidden * hidden + 3 * hidden + c["vocab_size"],
    )


@reads("vit")
def _vit(name: str, c: Config) -> Transformer:
    patches = (c["image_size"] // c["patch_size"]) ** 2
    labels = c.get("id2label") or {}
    return Transformer(
        name=name,
        family="vit",
        layers=c["num_hidden_layers"],
        hidden=c["hidden_size"],
        ffn=c["intermediate_size"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_attention_heads"],
        vocab=int(c.get("num_labels") or len(labels) or 2),
        seq=patches + 1,
        positions=patches + 1,
        bias=True,
        patch_values=c.get("num_channels", 3) * c["patch_size"] ** 2,
        other_params=c["hidden_size"],
    )


@reads("resnet")
def _resnet(name: str, c: Config) -> ConvNet:
    depths = tuple(c["depths"])
    found = next((depth for depth, blocks in DEPTHS.items() if blocks == depths), None)
    if found is None or c.get("layer_type", "bottleneck") != "bottleneck":
        raise ModelError(
            "This ResNet is not known to the planner.",
            field="model.depths",
            found=list(depths),
            expected="bottleneck blocks, " + ", ".join(str(list(blocks)) for blocks in DEPTHS.values()),
            next_step="Plan with the nearest: resnet-50, resnet-101 or resnet-152.",
        )
    labels = c.get("id2label") or {}
    return ConvNet(name=name, depth=found, classes=int(c.get("num_labels") or len(labels) or 2))
