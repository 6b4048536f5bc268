"""Coders of the frontier bench: nothing is lost over a run, forms have their levels, wrappers do what they say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.bench.frontier.coders import (
    FOUR,
    SIGN,
    TERNARY,
    TERNARY_MAX,
    AcpSGD,
    Bf16,
    Centroids,
    FewLevels,
    Fp8,
    Fp32,
    Integers,
    Key,
    Normalised,
    Outer,
    PackageForm,
    PowerSGD,
    RandomK,
    Rotated,
    TopK,
    TwoSided,
)

FORMS = {
    "fp32": Fp32(),
    "bf16": Bf16(),
    "fp8 e4m3": Fp8(),
    "fp8 32": Fp8(block=32),
    **{f"int{width}": Integers(width) for width in (2, 3, 4, 8)},
    "int4 stochastic": Integers(4, 64, stochastic=True),
    "sign": FewLevels(SIGN),
    "ternary max": FewLevels(TERNARY_MAX, 32),
    "ternary": FewLevels(TERNARY, 256),
    "four": FewLevels(FOUR),
    "centroids": Centroids(),
    "topk": TopK(0.05, Integers(4)),
    "topk 4 of 256": TopK(4 / 256, Centroids(), 256),
    "blocks": TopK(0.1, Integers(4), 4096, 16),
    "random": RandomK(0.1, Integers(8)),
    "rotated": Rotated(FewLevels(FOUR, 256)),
    "package int4": PackageForm("all|int4(block=64)"),
    "package int2": PackageForm("all|int2(block=64)"),
    "package topk": PackageForm("topk(density=0.05, chunk=4096)|int4(block=64)|bits"),
}
CODERS = {
    **{f"two-sided {name}": lambda form=form: TwoSided(form) for name, form in FORMS.items()},
    "normalised": lambda: Normalised(Integers(3)),
    "powersgd": lambda: PowerSGD(2),
    "powersgd int4": lambda: PowerSGD(4, Integers(4)),
    "acp": lambda: AcpSGD(4),
    "acp int8": lambda: AcpSGD(2, Integers(8)),
}
SHAPES = st.sampled_from([(1,), (7,), (3, 5), (16, 24), (65, 64), (8, 4, 3, 3), (1, 4097)])
MAGNITUDES = st.sampled_from([1e-12, 1e-3, 1.0, 1e6])
WORKERS, EXCHANGES = 3, 5
KEY = Key("weight", 0, "workers")


def draw(shape: tuple[int, ...], seed: int, magnitude: float) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values * magnitude * (values.abs() > 0.3)


def owed(coder: object, shape: tuple[int, ...]) -> torch.Tensor:
    """What the owner still has to say."""
    two_sided = coder.small if isinstance(coder, PowerSGD) else coder
    assert isinstance(two_sided, TwoSided)
    kept = two_sided.owed.get("weight")
    return torch.zeros(shape) if kept is None else kept.view(shape)


@pytest.mark.parametrize("name", CODERS)
@settings(deadline=None, max_examples=8)
@given(SHAPES, st.integers(0, 1000), MAGNITUDES)
def test_what_goes_in_comes_out_or_is_still_owed(name, shape, seed, magnitude):
    """Sum of all agreed means + owner's residual + mean of the workers' residuals == sum of all true means."""
    coder = CODERS[name]()
    residuals = [torch.zeros(shape) for _ in range(WORKERS)]
    put_in, got = torch.zeros(shape), torch.zeros(shape)
    for step in range(EXCHANGES):
        values = [draw(shape, seed + 31 * step + worker, magnitude) for worker in range(WORKERS)]
        ys = [value + residual for value, residual in zip(values, residuals, strict=True)]
        before = [y.clone() for y in ys]
        agreed = coder.agree(ys, "weight", step)
        assert all(torch.equal(y, copy) for y, copy in zip(ys, before, strict=True)), "inputs are not changed"
        residuals = [y - said for y, said in zip(ys, agreed.said, strict=True)]
        put_in += sum(values) / WORKERS
        got += agreed.mean
    kept = sum(residuals) / WORKERS + owed(coder, shape)
    torch.testing.assert_close(got + kept, put_in, rtol=0, atol=4e-4 * magnitude)


@pytest.mark.parametrize("name", CODERS)
def test_same_seeds_say_the_same_and_shapes_are_kept(name):
    shape = (65, 64)
    ys = [draw(shape, worker, 1.0) for worker in range(WORKERS)]
    one, other = (CODERS[name]().agree(ys, "weight", 3) for _ in range(2))
    assert one.mean.shape == shape
    assert [said.shape for said in one.said] == [shape] * WORKERS
    assert torch.equal(one.mean, other.mean)


CONTRACTIONS = [name for name in FORMS if name not in {"int2", "int4 stochastic", "ternary max"}]
"""Maxima of few levels, and chance, can say more than there was."""


@pytest.mark.parametrize("name", CONTRACTIONS)
@settings(deadline=None, max_examples=10)
@given(st.integers(1, 9000), st.integers(0, 1000), MAGNITUDES)
def test_a_form_leaves_less_than_there_was(name, n, seed, magnitude):
    """Error feedback needs it: |y - said| < |y|, unless y is zero, or random places miss what is not."""
    y = draw((2, n), seed, magnitude)
    said = FORMS[name].said(y, KEY)
    left, was = (y - said).double().norm(dim=1), y.double().norm(dim=1)
    assert bool(((left < was) | (said == 0).all(1)).all())
    assert bool((left <= was).all())


@pytest.mark.parametrize("name", FORMS)
def test_zeros_stay_zeros(name):
    assert torch.equal(FORMS[name].said(torch.zeros(2, 5000), KEY), torch.zeros(2, 5000))


def test_fp32_is_what_it_is_and_bf16_is_torchs():
    y = draw((2, 100), 0, 1.0)
    assert torch.equal(Fp32().said(y, KEY), y)
    assert torch.equal(Bf16().said(y, KEY), y.to(torch.bfloat16).to(torch.float32))
    assert (Fp32().bits(100), Bf16().bits(100)) == (3200, 1600)


@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_integers_use_their_levels_and_no_more(width):
    y = draw((1, 64), 1, 1.0)
    said = Integers(width).said(y, KEY)
    assert len(said.unique()) <= 2**width - 1
    step = said.abs().max() / (2 ** (width - 1) - 1)
    assert float((y - said).abs().max()) <= float(step) / 2 * 1.0001
    assert Integers(width).bits(130) == 3 * 16 + 130 * width


def test_stochastic_rounding_has_the_right_mean():
    y = draw((1, 64), 2, 1.0).expand(4000, 64).contiguous()
    mean = Integers(3, 64, stochastic=True).said(y, KEY).mean(0)
    spread = float(y.abs().max()) / 3 / 4000**0.5
    assert float((mean - y[0]).abs().max()) < 5 * spread


def test_a_fitted_scale_leaves_an_error_that_is_orthogonal_and_adds_no_power():
    y = draw((1, 1024), 3, 1.0)
    for levels in (TERNARY, FOUR):
        said = FewLevels(levels, 64).said(y, KEY)
        assert float((said * (y - said)).sum()) == pytest.approx(0, abs=0.01 * float(y.square().sum()))
        assert float(said.square().sum()) <= 1.01 * float(y.square().sum())


def test_few_levels_by_hand():
    y = torch.tensor([[4.0, -1.0, 0.5, -3.0]])
    assert FewLevels(SIGN, 4).said(y, KEY).tolist() == [[2.125, -2.125, 2.125, -2.125]]
    assert FewLevels(TERNARY_MAX, 4).said(y, KEY).tolist() == [[4.0, 0.0, 0.0, -4.0]]
    assert FewLevels(TERNARY, 4).said(y, KEY).tolist() == [[3.5, 0.0, 0.0, -3.5]]


def test_four_gaussian_levels_have_the_error_of_max():
    y = torch.randn(1, 1 << 16, generator=torch.Generator().manual_seed(0))
    error = float((y - FewLevels(FOUR, 256).said(y, KEY)).square().mean())
    assert error == pytest.approx(0.1175, abs=0.003)


def test_centroids_are_the_means_of_four_bins():
    y = draw((2, 5000), 5, 1.0)
    said = Centroids().said(y, KEY)
    for row, spoken in zip(y, said, strict=True):
        levels = spoken.unique()
        assert len(levels) <= 4
        for level in levels:
            torch.testing.assert_close(row[spoken == level].mean(), level, rtol=1e-4, atol=1e-6)


def test_rotation_is_undone_and_evens_out_an_outlier():
    y = draw((2, 1000), 6, 1.0)
    torch.testing.assert_close(Rotated(Fp32(), 256).said(y, KEY), y, rtol=0, atol=1e-5)
    spike = torch.zeros(1, 256)
    spike[0, 17] = 1.0
    torch.testing.assert_close(Rotated(FewLevels(SIGN, 256), 256).said(spike, KEY), spike, rtol=0, atol=1e-2)


def test_a_coder_that_normalises_says_small_coordinates_too():
    """Rows of very different size share a block: without normalisation, int3 says nothing of the small ones."""
    size = torch.tensor([1.0, 0.05]).repeat(32)
    normalised, plain = Normalised(Integers(3)), TwoSided(Integers(3))
    for step in range(20):
        ys = [draw((64, 64), 100 * step + worker, 1.0) * size for worker in range(WORKERS)]
        said, without = normalised.agree(ys, "weight", step).said[0], plain.agree(ys, "weight", step).said[0]
    small = size < 1
    assert int((without[:, small] != 0).sum()) == 0
    assert float((said - ys[0])[:, small].norm() / ys[0][:, small].norm()) < 0.4


def test_outer_steps_are_nesterovs():
    y = torch.ones(3)
    coder = Outer(TwoSided(Fp32()), 0.5, 0.9)
    one, two = (coder.agree([y, y], "weight", step).mean for step in range(2))
    assert one.tolist() == pytest.approx([0.5 * (1 + 0.9)] * 3)
    assert two.tolist() == pytest.approx([0.5 * (1 + 0.9 * 1.9)] * 3)
    assert Outer(TwoSided(Fp32()), 1.5).agree([y, y], "weight", 0).mean.tolist() == [1.5] * 3
