"""The disk cache: a second process compiles nothing, and every driver has a name of its own."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

from trainingkit.codec import Codec
from trainingkit.kernels.compiled.options import driver, source_digest

CODE = """
from trainingkit.codec import Codec
from trainingkit.kernels.numba_kernel import _compiled
Codec("topk(0.05)|int4", kernel="numba").warm()
print([sum(function.stats.cache_misses.values()) for function in _compiled("topk", "linear4", "elias_fano")])
"""


def test_a_second_process_compiles_nothing():
    Codec("topk(0.05)|int4", kernel="numba").warm()
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "[0, 0]"


def test_drivers_of_two_formats_do_not_share_a_name():
    def template(x):
        return CONSTANT  # noqa: F821

    one, two = driver(template, "one", CONSTANT=1), driver(template, "two", CONSTANT=2)
    assert one.py_func.__qualname__ == f"template_one_{source_digest()}"
    assert one.py_func.__qualname__ != two.py_func.__qualname__
    assert (one.py_func(0), two.py_func(0)) == (1, 2)
