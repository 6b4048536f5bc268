"""What the narrow quantisers lose: against the best scale there is, and against each other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import Codec, message_bytes


def errors(spec: str, x: torch.Tensor) -> torch.Tensor:
    codec, new_residual = Codec(spec), torch.empty_like(x)
    message = torch.empty(codec.message_bytes(x.numel()), dtype=torch.uint8)
    assert codec.encode(x, None, message, new_residual)
    return new_residual


def best_ternary(x: torch.Tensor) -> torch.Tensor:
    """[blocks] - the least squared error of levels -1, 0, 1 over a fine grid of scales."""
    top = x.abs().amax(1)
    scales = torch.linspace(0.02, 1, 400)[:, None, None] * top[None, :, None]
    level = torch.round(x / scales).clamp(-1, 1)
    return (x - level * scales).square().sum(-1).amin(0)


@pytest.mark.parametrize("factor", [1.0, 1.2, 1.4, 1.7])
@pytest.mark.parametrize("block", [64, 256])
def test_int2_is_near_the_best_ternary_scale(block, factor):
    x = torch.randn(40, block, generator=torch.Generator().manual_seed(0)) * factor
    lost = errors(f"all|int2(block={block})", x.flatten()).view_as(x).square().sum(1)
    assert lost.sum() < 1.1 * best_ternary(x).sum()


@pytest.mark.parametrize("factor", [1.0, 1.2, 1.4, 1.7])
def test_int2_sends_nearly_all_the_energy_of_the_largest_of_a_chunk(factor):
    x = torch.randn(64 * 4096, generator=torch.Generator().manual_seed(1)).view(64, 4096) * factor
    kept = x.gather(1, x.abs().topk(64, dim=1).indices)
    lost = errors("all|int2", kept.flatten().contiguous()).view_as(kept).square().sum(1)
    assert best_ternary(kept).sum() < 0.014 * kept.square().sum()
    assert lost.sum() < 0.036 * kept.square().sum()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([8, 64, 200, 256]), st.integers(0, 10**6), st.floats(-40, 12), st.sampled_from([0.0, 1.0, 2.0]))
def test_int2_sends_what_is_above_three_quarters_of_the_mean_as_its_mean(block, seed, power, tail):
    """Oracle in fp64. Steps of 1/4096 of the block's largest decide the nearest cases, and an eighth the scale."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(block, generator=generator) * (tail * torch.randn(block, generator=generator)).exp() * 2.0**power
    said = (x - errors(f"all|int2(block={block})", x)).double()
    size, step = x.double().abs(), x.double().abs().max() / 2048
    above = size - 0.75 * size.mean()
    assert (said[above > 2 * step] != 0).all() and (said[above < -2 * step] == 0).all()
    sent = said != 0
    assert torch.equal(said.sign()[sent], x.double().sign()[sent])
    mean = size[sent].mean().clamp(max=57344.0)  # the largest scale
    assert (said[sent].abs() - mean).abs().max() <= mean / 8 + 2 * step
    assert (x - said).norm() < size.norm(), "error feedback needs it"


def test_int2_says_too_little_of_what_is_beyond_its_scales():
    x = torch.tensor([3e10, -3e10, 1e9, 1.0] * 16)
    said = x.double() - errors("all|int2", x).double()
    assert said.unique().tolist() == [-57344.0, 0.0, 57344.0] and said.abs().sum() == 32 * 57344.0
    assert torch.equal(errors("all|int2", x * 0 + 2.0**-48), x * 0 + 2.0**-48), "kept until there is more of it"


def test_an_outlier_is_sent_in_several_rounds_and_nothing_is_lost():
    x, codec = torch.full((64,), 0.01), Codec("all|int2")
    x[5] = 50.0
    message, out = torch.empty(codec.message_bytes(64), dtype=torch.uint8), torch.empty(64)
    residual, new_residual, total = x.clone(), torch.empty(64), torch.zeros(64, dtype=torch.float64)
    for _ in range(60):
        assert codec.encode(torch.zeros(64), residual, message, new_residual)
        codec.decode(message, out)
        total += out
        residual, new_residual = new_residual, residual
    assert (total + residual - x).abs().max() <= 60 * 2.0**-24 * 0.01, "a rounding of the residual in each round"
    assert residual.abs().max() < 0.01


@pytest.mark.parametrize(
    ("spec", "bits"),
    [
        ("all|int2", 2.03125),
        ("all|int3", 3.25),
        ("all|int4", 4.25),
        ("all|int8", 8.25),
        ("all|fp8", 8.25),
        ("all|bf16", 16),
        ("all|fp32", 32),
        ("topk(0.015625)|int2", 0.158203125),
        ("topk(0.0625, chunk=4096)|int4", (96 + 96 + 4 * 34) * 8 / 4096),
    ],
)
def test_stated_bits_a_value(spec, bits):
    assert 8 * message_bytes(spec, 1 << 20) / (1 << 20) == bits


def test_more_bits_lose_less():
    x = torch.randn(8192, generator=torch.Generator().manual_seed(2))
    specs = ["all|int2", "all|int3", "all|int4", "all|fp8(format=e5m2)", "all|fp8", "all|int8", "all|fp32"]
    lost = [float(errors(spec, x).square().mean()) for spec in specs]
    assert lost == sorted(lost, reverse=True) and len(set(lost)) == len(lost)
    assert lost[0] < 0.2 and lost[1] < 0.065 and lost[-1] == 0


@pytest.mark.parametrize(("form", "fraction"), [("e4m3", 3), ("e5m2", 2)])
def test_fp8_is_within_half_of_its_last_place(form, fraction):
    x = torch.randn(4096, generator=torch.Generator().manual_seed(3))
    large = x.abs() > 1e-2
    assert (errors(f"all|fp8(format={form})", x)[large].abs() <= x[large].abs() * 2.0 ** (-fraction - 1)).all()
