"""A transformer's shape, and its parameters and flops counted from it.

Covers decoders (multi-head, grouped-query, latent attention; GELU or gated MLP; experts), encoders with a masked-LM
head and vision transformers. Flops are those of matrix products: two per multiply-add (Narayanan et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["decoder", "encoder", "vit"]


@dataclass(frozen=True)
class Transformer:
    """Sizes of one model; all are counts of values.

    Args:
        ffn: inner width of the MLP (of one expert, where there are experts).
        vocab: rows of the embedding; of a vision transformer, the classes.
        seq: tokens per sample that the model is meant for.
        gated: three matrices in the MLP (SwiGLU) in place of two.
        tied: the head is the embedding.
        positions: rows of a learned position table; 0: none.
        experts, experts_per_token: 0: a dense MLP.
        expert_islands: a token's experts live on so many hosts at most; 0: anywhere.
        shared_ffn: width of an expert that every token passes.
        dense_layers, dense_ffn: leading layers without experts, and their width.
        q_rank, kv_rank, rope_dim: latent attention (DeepSeek-V2); 0: ordinary.
        other_params: what else there is: token types, pooler, dense layer before the head.
        patch_values: values of one image patch; 0: tokens.
    """

    name: str
    family: Family
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    seq: int
    head_dim: int = 0
    gated: bool = False
    tied: bool = False
    bias: bool = False
    qkv_bias: bool = False
    rms: bool = False
    positions: int = 0
    final_norm: bool = True
    experts: int = 0
    experts_per_token: int = 0
    expert_islands: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    other_params: int = 0
    patch_values: int = 0
    dropout: bool = False

    @property
    def padded_vocab(self) -> int:
        """Rows of the head as frameworks keep it: whole multiples of 128."""
        return -(-self.vocab // 128) * 128

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        return self.family == "decoder"

    @property
    def attention_params(self) -> int:
        """Parameters of one layer's attention."""
        h, wide, narrow = self.hidden, self.heads * self.head_size, self.kv_heads * self.head_size
        if self.kv_rank:
            return self._latent_params()
        bias_in = (wide + 2 * narrow) if self.bias or self.qkv_bias else 0
        return h * (wide + 2 * narrow) + wide * h + bias_in + (h if self.bias else 0)

    def _latent_params(self) -> int:
        h, heads, size = self.hidden, self.heads, self.head_size
        queries = h * self.q_rank + self.q_rank * heads * (size + self.rope_dim) + self.q_rank
        keys = h * (self.kv_rank + self.rope_dim) + self.kv_rank * heads * 2 * size + self.kv_rank
        return queries + keys + heads * size * h

    def mlp_params(self, ffn: int) -> int:
        """Parameters of one dense MLP or expert of width `ffn`."""
        matrices = (3 if self.gated else 2) * self.hidden * ffn
        return matrices + ((ffn + self.hidden) if self.bias else 0)

    @property
    def norm_params(self) -> int:
        """Parameters of one normalisation."""
        return self.hidden * (1 if self.rms else 2)

    def layer_params(self, *, active: bool = False) -> int:
        """Parameters of one layer (with experts, where there are some); `active`: those that one token passes."""
        core = self.attention_params + 2 * self.norm_params
        if not self.experts:
            return core + self.mlp_params(self.ffn)
        used = self.experts_per_token if active else self.experts
        shared = self.mlp_params(self.shared_ffn) if self.shared_ffn else 0
        return core + used * self.mlp_params(self.ffn) + shared + self.hidden * self.experts

    @property
    def dense_layer_params(self) -> int:
        """Parameters of one of the leading layers without experts."""
        return self.attention_params + 2 * self.norm_params + self.mlp_params(self.dense_ffn)

    @property
    def embedding_params(self) -> int:
        """Parameters before the first layer."""
        rows = self.patch_values * self.hidden + self.hidden if self.patch_values else self.vocab * self.hidden
        return rows + self.positions * self.hidden

    @property
    def head_params(self) -> int:
        """Parameters after the last layer that are not the embedding's."""
        last = self.norm_params if self.final_norm else 0
        own = 0 if self.tied else self.vocab * self.hidden
        return last + own + (self.vocab if self.patch_values else 0)

    def params(self, *, active: bool = False) -> int:
        """All parameters; `active`: those that one token passes."""
        inner = (self.layers - self.dense_layers) * self.layer_params(active=active)
        leading = self.dense_layers * self.dense_layer_params if self.dense_layers else 0
        return inner + leading + self.embedding_params + self.head_params + self.other_params

    def forward_flops(self, tokens: int, seq: int) -> float:
        """Flops of a forward pass over `tokens` tokens in samples of `seq`; attention in full, as is customary."""
        matrices = self.layers * self._layer_matrix_params() + self.vocab * self.hidden * (
            0 if self.patch_values else 1
        )
        attention = 2 * self.layers * seq * self.heads * self.head_size
        return 2.0 * tokens * (matrices + attention)

    def _layer_matrix_params(self) -> int:
        h, wide, narrow = self.hidden, self.heads * self.head_size, self.kv_heads * self.head_size
        attention = self._latent_params() if self.kv_rank else h * (2 * wide + 2 * narrow)
        used = self.experts_per_token if self.experts else 1
        return attention + (3 if self.gated else 2) * h * (used * self.ffn + self.shared_ffn)
