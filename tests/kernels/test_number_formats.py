"""Number formats below the codec: every width of `linear`, and every code of `fp8`, the same from all kernels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.kernels import KERNELS, RowPlan

pytest.importorskip("numba")
TORCH, NUMBA = KERNELS.get("torch"), KERNELS.get("numba")


def linear_plan(bits: int, block: int, n: int) -> RowPlan:
    whole, tail = divmod(n, block)
    block_bytes = 2 + block * bits // 8
    value_bytes = whole * block_bytes + (2 + -(-tail * bits // 8) if tail else 0)
    return RowPlan("all", n, n, "linear", bits, block, block_bytes, value_bytes)


@pytest.mark.parametrize("bits", range(2, 9))
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 700), block=st.sampled_from([8, 24, 64, 200, 256]), seed=st.integers(0, 10**6))
def test_every_width_of_linear_has_a_compiled_form(bits, n, block, seed):
    plan = linear_plan(bits, block, n)
    assert NUMBA.supports(plan)
    x = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    found = []
    for kernel in (TORCH, NUMBA):
        message, error, out = torch.full((plan.row_bytes,), 0xA5, dtype=torch.uint8), torch.empty(n), torch.empty(n)
        assert kernel.encode(plan, x, None, message, error)
        assert kernel.decode(plan, message, out, 1.0, False)
        assert torch.equal(out + error, x)
        found.append((message, error.view(torch.int32), out.view(torch.int32)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(("form", "dtype"), [("fp8_e4m3", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)])
def test_every_fp8_code_is_read_and_written_as_torch_does(form, dtype):
    codes = torch.arange(256, dtype=torch.uint8)
    numbers = codes.view(dtype).float()
    codes = codes[numbers.isfinite() & ~((numbers == 0) & (codes > 0))]
    numbers = codes.view(dtype).float()
    n = len(codes)
    plan = RowPlan("all", n, n, form, 8, 256, 258, 2 + n)
    message, out, error = torch.empty(plan.row_bytes, dtype=torch.uint8), torch.empty(n), torch.empty(n)
    for kernel in (TORCH, NUMBA):
        assert kernel.encode(plan, numbers, None, message, error)
        assert torch.equal(message, torch.cat([torch.tensor([0x80, 0x3F], dtype=torch.uint8), codes]))
        assert kernel.decode(plan, message, out, 1.0, False)
        assert torch.equal(out, numbers) and not error.any()


@pytest.mark.parametrize("form", ["fp8_e4m3", "fp8_e5m2"])
def test_fp8_rounds_to_even_between_every_two_neighbours(form):
    dtype = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[form]
    codes = torch.arange(128, dtype=torch.uint8)
    numbers = codes.view(dtype).float()
    numbers = numbers[numbers.isfinite()]
    middle = (numbers[1:] + numbers[:-1]) / 2
    below, above = torch.nextafter(middle, torch.zeros(())), torch.nextafter(middle, torch.tensor(1e9))
    x = torch.cat([numbers, middle, -middle, below, above])
    plan = RowPlan("all", len(x), len(x), form, 8, 1024, 1026, 2 + len(x))
    message, error = torch.empty(plan.row_bytes, dtype=torch.uint8), torch.empty(len(x))
    assert NUMBA.encode(plan, x, None, message, error)
    expected = x.to(dtype).view(torch.uint8)
    assert torch.equal(message[2:], torch.where(x.to(dtype).float() == 0, 0, expected).to(torch.uint8))
