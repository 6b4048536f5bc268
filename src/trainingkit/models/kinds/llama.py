"""A Llama-shaped decoder from transformers, sized in the recipe and initialised afresh.

RMSNorm, rotary positions, SwiGLU, no biases (Touvron et al., "LLaMA", 2023). Parameters per layer:
attention 2 d^2 + 2 d d_kv, feed-forward 3 d f, norms 2 d; plus embedding and head V d each, and a last norm d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from trainingkit.core.datainfo import DataInfo
from trainingkit.models.needs import need_language
from trainingkit.models.registry import MODELS, ModelSection

if TYPE_CHECKING:
    from torch import nn


@MODELS.register("llama")
class LlamaSection(ModelSection):
    """Settings of the decoder."""

    layers: int = Field(default=6, ge=1, description="number of blocks")
    hidden: int = Field(default=256, ge=8, description="width d")
    feed_forward: int = Field(default=704, ge=8, description="width f of the feed-forward part")
    heads: int = Field(default=4, ge=1, description="attention heads")
    kv_heads: int = Field(default=4, ge=1, description="key / value heads (fewer: grouped-query attention)")
    tie_embeddings: bool = Field(default=False, description="use the embedding as head")

    @model_validator(mode="after")
    def _shapes_fit(self) -> LlamaSection:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden ({self.hidden}) must be an even multiple of heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self

    def build(self, info: DataInfo) -> nn.Module:
        """The decoder, for the data's vocabulary and sequence length."""
        from transformers import LlamaConfig, LlamaForCausalLM

        vocab_size, seq_len = need_language(info, "llama")
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=self.hidden,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=max(2048, seq_len),
            tie_word_embeddings=self.tie_embeddings,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        return LlamaForCausalLM(config)

    def parameter_count(self, info: DataInfo) -> int | None:
        """By the formula at the top of this file."""
        vocab_size, _ = need_language(info, "llama")
        kv = self.hidden // self.heads * self.kv_heads
        layer = 2 * self.hidden**2 + 2 * self.hidden * kv + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return self.layers * layer + vocab_size * self.hidden * (1 if self.tie_embeddings else 2) + self.hidden
