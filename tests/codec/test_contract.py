"""What every codec promises, for every registered selection and quantiser, on every kernel that runs here."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import Codec
from trainingkit.codec.packings import PACKINGS
from trainingkit.codec.quantisers import QUANTISERS
from trainingkit.codec.selections import SELECTIONS
from trainingkit.kernels import KERNELS

EXTRA = ["all|int4(block=8)", "all|int8(block=200)", "topk(0.3, chunk=50)|int4(block=8)", "topk(1.0, chunk=1)|bf16"]
EXTRA += ["topk(0.01, chunk=65536)|int8", "topk(1.0, chunk=128)|int4", "topk(0.015625)|int2", "all|int2(block=200)"]
EXTRA += ["all|int2(block=64)", "all|int2(block=8)", "all|int2(block=4096)"]
EXTRA += ["all|fp8(block=8, format=e5m2)", "all|int3(block=24)", *(f"topk(0.07)|int4|{p}" for p in PACKINGS.names())]
SPECS = [f"{s}|{q}" for s in SELECTIONS.names() for q in QUANTISERS.names()] + EXTRA
ABLE = [name for name in KERNELS.names() if KERNELS.get(name).missing() is None]
SIZES = [0, 1, 2, 7, 63, 64, 65, 200, 1000, 4095, 4096, 4097, 9001]
KINDS = ["normal", "denormal", "tiny", "huge", "zeros", "ties", "heavy", "sparse"]
LARGEST = torch.finfo(torch.float32).max
modest = settings(max_examples=12, deadline=None)


def values(kind: str, n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(n, generator=generator)
    if kind == "ties":
        return torch.randint(-2, 3, (n,), generator=generator) * 0.5
    if kind == "heavy":
        return torch.ldexp(normal, torch.randint(-140, 120, (n,), generator=generator))
    if kind == "sparse":
        return normal * (torch.rand(n, generator=generator) < 0.02)
    if kind == "huge":
        return (normal * LARGEST).clamp(-LARGEST, LARGEST)
    return normal * {"normal": 1.0, "denormal": 1e-42, "tiny": 1e-37, "zeros": 0.0}[kind]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32)


def encoded(codec: Codec, x: torch.Tensor, residual: torch.Tensor | None):
    message = torch.full((codec.message_bytes(x.numel()),), 0xA5, dtype=torch.uint8)
    new_residual = torch.full_like(x, 3.0)
    return codec.encode(x, residual, message, new_residual), message, new_residual


def decoded(codec: Codec, message: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.full((n,), -5.0)
    codec.decode(message, out)
    return out


inputs = {"kind": st.sampled_from(KINDS), "n": st.sampled_from(SIZES), "seed": st.integers(0, 10**6)}


@pytest.mark.parametrize("spec", SPECS)
@modest
@given(**inputs)
def test_decoded_plus_residual_is_the_input(spec, kind, n, seed):
    x, residual = values(kind, n, seed), values(kind, n, seed + 1) * 0.25
    if kind == "huge":
        residual = residual * 0
    kept = x.clone(), residual.clone()
    codec = Codec(spec)
    finite, message, new_residual = encoded(codec, x, residual)
    assert finite
    said = decoded(codec, message, n)
    assert torch.equal(new_residual, x + residual - said)
    if codec.spec.quantiser.exact:
        assert torch.equal(said + new_residual, x + residual)
    else:
        lost = x.add(residual).double() - said.double() - new_residual.double()
        assert (lost.abs() <= 2.0**-24 * new_residual.abs().double()).all()
    assert torch.equal(bits(x), bits(kept[0])) and torch.equal(bits(residual), bits(kept[1]))


@pytest.mark.parametrize("spec", SPECS)
@modest
@given(**inputs, weight=st.floats(-2, 2, width=32), with_residual=st.booleans())
def test_all_kernels_give_the_same_bits(spec, kind, n, seed, weight, with_residual):
    x, base = values(kind, n, seed), values("normal", n, seed + 2)
    residual = values("normal", n, seed + 1) if with_residual else None
    results = []
    for name in ABLE:
        codec = Codec(spec, kernel=name)
        finite, message, new_residual = encoded(codec, x, residual)
        weighted, summed = torch.empty(n), base.clone()
        codec.decode(message, weighted, weight=weight)
        codec.decode(message, summed, weight=weight, accumulate=True)
        results.append((finite, message, bits(new_residual), bits(weighted), bits(summed)))
    for other in results[1:]:
        assert other[0] == results[0][0]
        assert all(torch.equal(a, b) for a, b in zip(results[0][1:], other[1:], strict=True))


@pytest.mark.parametrize("kernel", ABLE)
@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=6, deadline=None)
@given(n=st.sampled_from(SIZES[1:]), bad=st.sampled_from([float("nan"), float("inf"), -float("inf")]), data=st.data())
def test_what_is_not_finite_is_flagged_and_the_message_stays_sound(spec, kernel, n, bad, data):
    x = values("normal", n, n)
    for _ in range(data.draw(st.integers(1, 3))):
        x[data.draw(st.integers(0, n - 1))] = bad
    codec = Codec(spec, kernel=kernel)
    finite, message, _ = encoded(codec, x, torch.zeros(n))
    again = encoded(Codec(spec, kernel="torch"), x, torch.zeros(n))
    assert not finite and not again[0]
    assert torch.equal(message, again[1])
    assert decoded(codec, message, n).isfinite().all()


@pytest.mark.parametrize("spec", SPECS)
@modest
@given(kind=st.sampled_from(KINDS), parts=st.lists(st.integers(0, 3), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_messages_of_slices_follow_each_other(spec, kind, parts, seed):
    codec = Codec(spec)
    granule = max(codec.granule, 1)
    sizes = [part * granule for part in parts if part * granule < 70000] + [granule // 3]
    x = values(kind, sum(sizes), seed)
    _, whole, whole_residual = encoded(codec, x, None)
    pieces = [encoded(codec, piece, None) for piece in x.split(sizes)]
    assert torch.equal(torch.cat([message for _, message, _ in pieces]), whole)
    assert torch.equal(torch.cat([residual for _, _, residual in pieces]), whole_residual)
    start = sum(sizes[:-1])
    tail = whole[codec.byte_offset(start) :]
    assert torch.equal(decoded(codec, tail, sizes[-1]), decoded(codec, whole, len(x))[start:])


@pytest.mark.parametrize("spec", SPECS)
def test_dropping_the_residual_changes_nothing_else(spec):
    for kernel in ABLE:
        codec, x = Codec(spec, kernel=kernel), values("normal", 5000, 1)
        _, message, _ = encoded(codec, x, x * 0.5)
        alone = torch.zeros_like(message)
        assert codec.encode(x, x * 0.5, alone, None)
        assert torch.equal(alone, message)


@pytest.mark.parametrize("kernel", ABLE)
def test_topk_keeps_what_torch_topk_keeps(kernel):
    x = values("normal", 4096 * 3, 8)
    codec = Codec("topk(0.05)|fp32", kernel=kernel)
    _, message, _ = encoded(codec, x, None)
    kept = decoded(codec, message, len(x)).view(3, 4096)
    rows = x.view(3, 4096)
    expected = torch.zeros_like(rows)
    best = rows.abs().topk(205, dim=1).indices
    assert torch.equal(kept, expected.scatter(1, best, rows.gather(1, best)))


@pytest.mark.parametrize("kernel", ABLE)
def test_equal_magnitudes_are_kept_by_lowest_index(kernel):
    x = torch.tensor([1.0, -1.0] * 50)
    codec = Codec("topk(0.1, chunk=100)|fp32", kernel=kernel)
    _, message, _ = encoded(codec, x, None)
    assert decoded(codec, message, 100).nonzero().flatten().tolist() == list(range(10))


def test_residual_carries_small_values_until_they_are_sent():
    codec = Codec("topk(0.02, chunk=100)|int4")
    x, residual, total = values("normal", 1000, 3), torch.zeros(1000), torch.zeros(1000, dtype=torch.float64)
    for _ in range(200):
        _, message, residual = encoded(codec, x, residual)
        total += decoded(codec, message, 1000)
    assert ((total / 200 - x).abs() < 0.02 * x.abs().max() * 100 / 2 / 10).all()
