"""When the Triton kernel may run, and what it says when it may not."""

import importlib.util
import subprocess
import sys

import pytest
import torch

from trainingkit.codec import Codec
from trainingkit.core.errors import ConfigError
from trainingkit.kernels import KERNELS, RowPlan, pick
from trainingkit.kernels.triton_kernel import TritonKernel

PLAN = RowPlan("all", 64, 64, "linear", 4, 64, 34, 34)
WITHOUT = """
import sys
sys.modules["triton"] = None
import torch
from trainingkit.codec import Codec
from trainingkit.kernels import KERNELS
codec, x = Codec("topk(0.05)|int4", kernel="torch"), torch.randn(5000)
message = torch.zeros(codec.message_bytes(5000), dtype=torch.uint8)
print(codec.encode(x, None, message, None), KERNELS.get("triton").missing())
"""


def test_everything_works_without_triton():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "True triton is not installed"


def test_triton_by_name_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "triton" else find(name))
    with pytest.raises(ConfigError) as caught:
        Codec("all|int4", kernel="triton")
    for words in ("triton is not installed", "field:     kernel", "pip install 'trainingkit[triton]'"):
        assert words in str(caught.value)


def test_without_a_gpu_it_is_refused_in_words(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert TritonKernel.missing() == "there is no CUDA device"
    with pytest.raises(ConfigError, match="there is no CUDA device"):
        Codec("all|int4", kernel="triton")


@pytest.mark.parametrize("name", [name for name in KERNELS.names() if name != "triton"])
def test_kernels_for_the_cpu_refuse_other_devices(name):
    with pytest.raises(ConfigError, match=f"The {name} kernel cannot be used here: it takes tensors on cpu, not"):
        pick(name, PLAN, "xpu")


def test_auto_without_a_kernel_for_the_device_says_what_each_takes(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ConfigError) as caught:
        pick("auto", PLAN, "meta")
    for words in ("No kernel can encode tensors on meta", "triton: it takes tensors on cuda", "torch: it takes"):
        assert words in str(caught.value)


def test_the_device_of_x_decides_and_the_others_must_be_there():
    codec = Codec("all|int4")
    message = torch.zeros(codec.message_bytes(100), dtype=torch.uint8)
    with pytest.raises(ConfigError, match="No kernel can encode tensors on meta"):
        codec.encode(torch.zeros(100, device="meta"), None, message, None)
    with pytest.raises(ConfigError, match=r"\[100\] float32, contiguous, on cpu"):
        codec.encode(torch.zeros(100), torch.zeros(100, device="meta"), message, None)


def test_the_interpreter_takes_cpu_tensors_and_a_gpu_its_own(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert TritonKernel.devices() == ("cpu",)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert TritonKernel.devices() == ("cuda",)


def test_the_bench_for_a_gpu_ends_in_words_without_one(monkeypatch):
    from trainingkit.bench import triton_codec

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError) as caught:
        triton_codec.run(1 << 20, 3, command="trainingkit bench codec --device cuda")
    for words in ("There is no GPU to measure", "field:     --device", "choose --device cpu"):
        assert words in str(caught.value)
