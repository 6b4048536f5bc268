"""Weights of a transformers folder are used, or it is said that they are not."""

import logging

import pytest
from safetensors.torch import load_file, save_file

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ModelError
from trainingkit.models.kinds.hf import HfSection
from trainingkit.models.kinds.llama import LlamaSection

TEXT = DataInfo("text", "language", "", "", 10, 10, vocab_size=32, seq_len=8)


@pytest.fixture
def folder(tmp_path):
    LlamaSection(layers=1, hidden=8, feed_forward=8, heads=1, kv_heads=1).build(TEXT).save_pretrained(tmp_path)
    return tmp_path


def test_pickled_weights_are_refused_not_ignored(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="weights are pickled") as caught:
        HfSection(path=folder).build(TEXT)
    assert "model.from_scratch" in str(caught.value.next_step)
    assert HfSection(path=folder, from_scratch=True).build(TEXT) is not None


def test_weights_that_are_missing_are_said(folder, caplog):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.WARNING, logger="trainingkit"):
        HfSection(path=folder).build(TEXT)
    assert "1 tensors are not in the folder and start afresh: model.norm.weight" in caplog.text


def test_a_class_that_is_no_model_is_refused(folder):
    with pytest.raises(ModelError, match="LlamaConfig is not a model"):
        HfSection(path=folder, architecture="LlamaConfig").build(TEXT)
