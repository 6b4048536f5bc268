"""The Triton kernels compile for a GPU that is not here, and round as the wire format says: no product is fused with a
sum, no division is approximate, no small number is flushed to zero.
"""

import re

import pytest

pytest.importorskip("triton")

import triton_worker as worker

from trainingkit.codec.layout import runs
from trainingkit.codec.spec import parse

SPECS = ["all|bf16", "all|int3", "all|fp8", "all|int2", "topk(0.05)|int4|bits", "topk(0.05)|int2|elias_fano"]
SPECS += [
    "topk(0.25, chunk=1024)|int8|bitmap",
    "topk(1.0, chunk=1)|fp32|bits",
    "topk(0.1, chunk=16384)|int4|elias_fano",
]
HOPPER = 90


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    with worker.start(**environment) as pool:
        yield pool


@pytest.mark.parametrize("spec", SPECS)
def test_compiled_arithmetic_rounds_each_operation(compiler, spec):
    plan = runs(parse(spec), 16384)[0].plan
    kernels = compiler.submit(worker.assembly, plan, HOPPER).result()
    assert len(kernels) == 2
    for name, ptx in kernels.items():
        assert "st.global" in ptx, name
        assert not re.findall(r"\bfma\.|\bmad\.[a-z.]*f32|\.ftz|\bdiv\.(?:full|approx)", ptx), name
    divides = any("div.rn.f32" in ptx for ptx in kernels.values())
    assert divides == (plan.block > 1)


def test_a_block_is_read_once(compiler):
    plan = runs(parse("all|int4"), 16384)[0].plan
    ptx = compiler.submit(worker.assembly, plan, HOPPER).result()["encode_tile"]
    lanes_of_a_thread = 2048 // (4 * 32)
    assert len(re.findall(r"ld\.global", ptx)) <= 2 * lanes_of_a_thread
