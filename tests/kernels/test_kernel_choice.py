"""Which kernel runs: the fastest that can, or the one that is named, or an error in words."""

import importlib.util
import subprocess
import sys

import pytest

from trainingkit.codec import Codec
from trainingkit.core.errors import ConfigError
from trainingkit.kernels import KERNELS, RowPlan, pick, warm
from trainingkit.kernels.numba_kernel import NumbaKernel

PLAN = RowPlan("all", 64, 64, "linear", 4, 64, 34, 34)
UNKNOWN_WIDTH = RowPlan("all", 64, 64, "linear", 9, 64, 74, 74)


def without_numba(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else find(name, *rest))


def test_auto_takes_the_fastest_that_can():
    able = [KERNELS.get(name) for name in KERNELS.names() if KERNELS.get(name).missing() is None]
    assert pick("auto", PLAN) is max(able, key=lambda kernel: kernel.speed)


def test_auto_falls_back_to_torch(monkeypatch):
    without_numba(monkeypatch)
    assert pick("auto", PLAN) is KERNELS.get("torch")
    assert pick("torch", PLAN) is KERNELS.get("torch")


def test_numba_by_name_says_how_to_get_it(monkeypatch):
    without_numba(monkeypatch)
    with pytest.raises(ConfigError) as caught:
        Codec("all|int4", kernel="numba")
    for words in ("numba is not installed", "field:     kernel", "pip install 'trainingkit[numba]'"):
        assert words in str(caught.value)


def test_big_endian_processors_use_torch(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(sys, "byteorder", "big")
    assert pick("auto", PLAN) is KERNELS.get("torch")
    with pytest.raises(ConfigError, match="big-endian"):
        pick("numba", PLAN)


def test_a_width_without_a_compiled_form_runs_on_torch():
    pytest.importorskip("numba")
    assert not NumbaKernel.supports(UNKNOWN_WIDTH)
    assert pick("auto", UNKNOWN_WIDTH) is KERNELS.get("torch")
    with pytest.raises(ConfigError, match="no form of all, 9-bit linear"):
        pick("numba", UNKNOWN_WIDTH)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'numba'"):
        pick("nunba", PLAN)


@pytest.mark.parametrize("name", KERNELS.names())
def test_warm_runs_once_and_keeps_nothing(name):
    if KERNELS.get(name).missing() is None:
        assert warm(name, PLAN) is None


def test_choosing_imports_no_compiler():
    code = "import sys; import trainingkit.codec; from trainingkit.kernels import KERNELS; KERNELS.names();"
    code += "print([name for name in ('torch', 'numba') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
