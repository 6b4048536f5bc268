"""Model kinds: what they count is what they build, and what does not fit is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError, ModelError
from trainingkit.core.section import check
from trainingkit.models.kinds.hf import HfSection
from trainingkit.models.kinds.llama import LlamaSection
from trainingkit.models.kinds.python import PythonSection

TEXT = DataInfo("text", "language", "", "", 10, 10, vocab_size=64, seq_len=16, bytes_per_token=1.0)
IMAGES = DataInfo("images", "images", "", "", 10, 10, classes=3, image_shape=(1, 8, 8))
SMALL = {"layers": 2, "hidden": 16, "feed_forward": 24, "heads": 2, "kv_heads": 1}


@pytest.mark.parametrize("tied", [False, True])
def test_llama_is_counted_right_and_gives_a_loss(tied: bool) -> None:
    section = LlamaSection(**SMALL, tie_embeddings=tied)
    model = section.build(TEXT)
    assert sum(p.numel() for p in model.parameters()) == section.parameter_count(TEXT)
    tokens = torch.randint(0, 64, (2, 16))
    loss = model(input_ids=tokens, labels=tokens).loss
    assert loss.dim() == 0 and 2 < float(loss.detach()) < 8
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"heads": 3}, "must be an even multiple of heads"),
        ({"heads": 4, "kv_heads": 3}, "must be a multiple of kv_heads"),
    ],
)
def test_llama_shapes_that_do_not_fit(values: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        check(LlamaSection, {**SMALL, **values}, field="model")
    assert problem in str(caught.value.expected)


def test_a_language_model_refuses_images() -> None:
    with pytest.raises(ConfigError, match="not token sequences") as caught:
        LlamaSection(**SMALL).build(IMAGES)
    assert caught.value.field == "model.kind"


def test_hf_folder_round_trip(tmp_path: Path) -> None:
    trained = LlamaSection(**SMALL).build(TEXT)
    trained.save_pretrained(tmp_path)  # type: ignore[operator]
    section = HfSection(path=tmp_path)
    again = section.build(TEXT)
    assert section.parameter_count(TEXT) == sum(p.numel() for p in trained.parameters())
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in trained.state_dict().items())
    fresh = HfSection(path=tmp_path, from_scratch=True).build(TEXT).state_dict()
    assert not torch.equal(fresh["lm_head.weight"], state["lm_head.weight"])


def test_hf_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json") as caught:
        HfSection(path=tmp_path).build(TEXT)
    assert caught.value.found == str(tmp_path)
    LlamaSection(**SMALL).build(TEXT).save_pretrained(tmp_path)  # type: ignore[operator]
    larger = DataInfo("text", "language", "", "", 10, 10, vocab_size=65, seq_len=16)
    with pytest.raises(ModelError, match="vocabulary is smaller") as caught:
        HfSection(path=tmp_path).build(larger)
    assert "64 tokens in config.json, 65 in the data" in str(caught.value)
    with pytest.raises(ModelError, match="no class 'LlamaForCausalML'") as caught:
        HfSection(path=tmp_path, architecture="LlamaForCausalML").build(TEXT)
    assert "Did you mean 'LlamaForCausalLM'?" in str(caught.value)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json cannot be used"):
        HfSection(path=tmp_path).build(TEXT)


MODULE = """
import torch
def width(n, info=None):
    return torch.nn.Linear(n, info.classes)
def number():
    return 3
"""


def test_python_models(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    ref = f"{tmp_path / 'mine.py'}:"
    model = PythonSection(ref=ref + "width", args={"n": 4}).build(IMAGES)
    assert isinstance(model, torch.nn.Linear) and model.out_features == 3
    with pytest.raises(ModelError, match="must return a torch module") as caught:
        PythonSection(ref=ref + "number").build(IMAGES)
    assert caught.value.found == "int"
    with pytest.raises(ModelError, match="cannot be called like this"):
        PythonSection(ref=ref + "width", args={"m": 4}).build(IMAGES)
    with pytest.raises(ConfigError, match="no name 'widht'") as caught:
        PythonSection(ref=ref + "widht").build(IMAGES)
    assert "Did you mean 'width'?" in str(caught.value)
    assert PythonSection(ref=ref + "width").parameter_count(IMAGES) is None
