"""Parameters and flops by formula against transformers' own counts (on the meta device) and the papers' formulas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from trainingkit.core.errors import ModelError
from trainingkit.planner.models import ConvNet, Transformer, find_model, preset_names
from trainingkit.planner.models.huggingface import from_config

SMALL = {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4}
CASES = {
    "llama": (transformers.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=512), "LlamaForCausalLM"),
    "llama tied": (transformers.LlamaConfig(**SMALL, vocab_size=512, tie_word_embeddings=True), "LlamaForCausalLM"),
    "mistral": (transformers.MistralConfig(**SMALL, num_key_value_heads=2, vocab_size=512), "MistralForCausalLM"),
    "qwen2": (transformers.Qwen2Config(**SMALL, num_key_value_heads=2, vocab_size=512), "Qwen2ForCausalLM"),
    "qwen3": (
        transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=32, vocab_size=512),
        "Qwen3ForCausalLM",
    ),
    "mixtral": (
        transformers.MixtralConfig(**SMALL, num_key_value_heads=2, vocab_size=512, num_local_experts=4),
        "MixtralForCausalLM",
    ),
    "gpt2": (
        transformers.GPT2Config(n_layer=3, n_embd=64, n_head=4, vocab_size=512, n_positions=128),
        "GPT2LMHeadModel",
    ),
    "gpt_neox": (transformers.GPTNeoXConfig(**SMALL, vocab_size=512), "GPTNeoXForCausalLM"),
    "bert": (transformers.BertConfig(**SMALL, vocab_size=512), "BertForMaskedLM"),
    "vit": (transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=10), "ViTForImageClassification"),
    "resnet": (transformers.ResNetConfig(num_labels=10), "ResNetForImageClassification"),
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_transformers_own(case: str) -> None:
    config, name = CASES[case]
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    counted = sum(p.numel() for p in model.parameters())
    assert find_model(model).params() == counted


PUBLISHED_B = {
    "gpt2": 0.124,
    "gpt3-175b": 174.6,
    "mt-nlg-530b": 529.6,
    "gpt-1t": 1008.0,
    "llama3-8b": 8.03,
    "llama3-70b": 70.6,
    "llama3-405b": 405.9,
    "mixtral-8x7b": 46.7,
    "bert-large": 0.335,
    "vit-large": 0.304,
    "resnet-50": 0.02556,
    "resnet-152": 0.0602,
}


def test_presets_have_their_published_sizes() -> None:
    for name, billions in PUBLISHED_B.items():
        assert find_model(name).params() / 1e9 == pytest.approx(billions, rel=0.005), name
    assert set(PUBLISHED_B) <= set(preset_names())


def test_flops_are_the_papers_formula() -> None:
    """Narayanan et al. 2021: 96 B s l h^2 (1 + s / 6h + V / 16lh) with recompute, of which forward is a quarter."""
    model = find_model("gpt3-175b")
    assert isinstance(model, Transformer)
    s, layers, h, vocab, batch = 2048, 96, 12288, 51200, 3
    whole = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert model.forward_flops(batch * s, s) == pytest.approx(whole / 4, rel=1e-3)


def test_resnet_flops_are_the_known_ones() -> None:
    """4.1 billion multiply-adds (He et al. with v1.5 strides), two flops each."""
    model = find_model("resnet-50")
    assert isinstance(model, ConvNet)
    assert model.forward_flops(1) == pytest.approx(2 * 4.09e9, rel=0.01)


def test_active_parameters_of_experts() -> None:
    model = find_model("mixtral-8x7b")
    assert isinstance(model, Transformer)
    assert model.params(active=True) / 1e9 == pytest.approx(12.9, rel=0.01)


def test_a_config_file_or_its_folder_will_do(tmp_path: Path) -> None:
    config, _ = CASES["llama"]
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert find_model(str(tmp_path)).params() == find_model(str(tmp_path / "config.json")).params()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ModelError) as caught:
        find_model("lama3-70b")
    assert "Did you mean 'llama3-70b'?" in str(caught.value)


def test_unknown_kinds_and_missing_sizes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.model_type"):
        from_config("x", {"model_type": "lstm"})
    with pytest.raises(ModelError, match=r"model\.num_hidden_layers"):
        from_config("x", {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1})
    broken = tmp_path / "config.json"
    broken.write_text("[1, 2]")
    with pytest.raises(ModelError, match="not a model's configuration"):
        find_model(str(broken))
