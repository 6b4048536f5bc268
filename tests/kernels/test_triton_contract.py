"""The Triton kernel gives the reference's bits, for all plans it supports. Interpreted, unless there is a GPU."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

import triton_worker as worker

from trainingkit.codec.layout import runs
from trainingkit.codec.packings import PACKINGS
from trainingkit.codec.quantisers import QUANTISERS
from trainingkit.codec.selections import SELECTIONS
from trainingkit.codec.size import granule
from trainingkit.codec.spec import parse
from trainingkit.kernels import KERNELS, RowPlan

SMALL = {"all": "all", "topk": "topk(0.05, chunk=512)"}
EXTRA = ["all|int4(block=200)", "topk(1.0, chunk=1)|bf16|bits", "topk(1.0, chunk=128)|int4|bits"]
EXTRA += [f"topk(0.3, chunk=100)|int4(block=24)|{packing}" for packing in PACKINGS.names()]
EXTRA += ["all|fp8(format=e5m2)", "topk(0.01, chunk=100)|int8(block=4096)|elias_fano"]
SPECS = [f"{SMALL[s]}|{q}" for s in SELECTIONS.names() for q in QUANTISERS.names()] + EXTRA
SIZES = [1, 2, 7, 63, 64, 65, 200, 513, 1500]
KINDS = ["normal", "denormal", "tiny", "huge", "zeros", "ties", "heavy", "sparse"]
PAGE = Path(__file__).parents[2] / "docs" / "wire-format.md"
VECTORS = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0])
LARGEST = np.finfo(np.float32).max


@pytest.fixture(scope="module")
def triton():
    with worker.start(**worker.interpreting()) as pool:
        yield pool


def values(kind: str, n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    normal = draw.standard_normal(n)
    if kind == "ties":
        normal = draw.integers(-2, 3, n) * 0.5
    if kind == "heavy":
        normal = np.ldexp(normal, draw.integers(-140, 120, n))
    if kind == "sparse":
        normal = normal * (draw.random(n) < 0.02)
    if kind == "huge":
        normal = np.clip(normal * float(LARGEST), -LARGEST, LARGEST)
    return (normal * {"denormal": 1e-42, "tiny": 1e-37, "zeros": 0.0}.get(kind, 1.0)).astype(np.float32)


def few(spec: str, n: int) -> int:
    """At most four rows: the interpreter takes some 10 ms for each."""
    return n if spec.startswith("all") else min(n, 4 * granule(spec))


def same(triton, plan: RowPlan, *arguments) -> worker.Outcome:
    """Both outcomes, compared field by field; the reference's is given back."""
    found = triton.submit(worker.round_trip, "triton", plan, *arguments).result()
    expected = worker.round_trip("torch", plan, *arguments)
    wrong = [name for name, one, other in zip(expected._fields, found, expected, strict=True) if one != other]
    assert not wrong, f"{wrong} of {plan}"
    return expected


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=3, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.sampled_from(SIZES),
    seed=st.integers(0, 10**6),
    weight=st.floats(-2, 2, width=32),
    with_residual=st.booleans(),
)
def test_same_bits_as_the_reference(triton, spec, kind, n, seed, weight, with_residual):
    n = few(spec, n)
    x, base = values(kind, n, seed), values("normal", n, seed + 2)
    residual = values("tiny" if kind == "huge" else "normal", n, seed + 1) if with_residual else None
    for run in runs(parse(spec), n):
        part = slice(run.start, run.stop)
        old = None if residual is None else residual[part]
        outcome = same(triton, run.plan, x[part], old, base[part], weight)
        assert outcome.finite and outcome.sound


@pytest.mark.parametrize("weight", [-0.0, 1e-45, 3e38, 0.1])
def test_the_weight_is_rounded_to_fp32_and_keeps_its_sign(triton, weight):
    x = values("normal", 100, 6)
    for spec in ("all|int4", "topk(0.3, chunk=100)|bf16|bits"):
        same(triton, runs(parse(spec), 100)[0].plan, x, None, x, weight)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("kind", ["normal", "heavy", "huge"])
def test_every_width_of_the_linear_format(triton, bits, kind):
    for block, width in ((8, 61), (24, 100), (64, 64)):
        block_bytes, tail = 2 + block * bits // 8, width % block
        tail_bytes = 2 + (tail * bits + 7) // 8 if tail else 0
        plan = RowPlan(
            "all", width, width, "linear", bits, block, block_bytes, width // block * block_bytes + tail_bytes
        )
        x = values(kind, 2 * width, bits)
        same(triton, plan, x, None, x, 1.0)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_not_finite_is_flagged_and_sent_as_the_reference_sends_it(triton, spec):
    x = values("normal", few(spec, 150), 3)
    x[[0, len(x) // 2, -1]] = np.nan, np.inf, -np.inf
    for run in runs(parse(spec), len(x)):
        part, base = x[run.start : run.stop], values("zeros", run.stop - run.start, 0)
        found = triton.submit(worker.round_trip, "triton", run.plan, part, None, base, 1.0).result()
        expected = worker.round_trip("torch", run.plan, part, None, base, 1.0)
        assert found.finite == expected.finite == bool(np.isfinite(part).all())
        assert found.message == expected.message and found.weighted == expected.weighted


@pytest.mark.parametrize("spec", SPECS)
def test_dropping_the_residual_changes_nothing_else(triton, spec):
    plan = runs(parse(spec), 1024)[0].plan
    x = values("normal", 2 * plan.width, 4)
    expected = worker.without_new_residual("torch", plan, x)
    assert triton.submit(worker.without_new_residual, "triton", plan, x).result() == expected


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.startswith("topk(0.3")])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), cells=st.integers(0, 3), accumulate=st.booleans())
def test_damaged_messages_are_found_and_nothing_is_written_outside(triton, spec, seed, cells, accumulate):
    plan, draw = runs(parse(spec), 200)[0].plan, np.random.default_rng(seed)
    intact = worker.without_new_residual("torch", plan, values("normal", 200, seed))
    message = np.frombuffer(intact, np.uint8).copy()
    message[draw.integers(0, plan.index_bytes, cells)] = draw.integers(0, 256, cells)
    sound, out, kept = triton.submit(worker.decoded, "triton", plan, message, accumulate).result()
    expected, expected_out, _ = worker.decoded("torch", plan, message, accumulate)
    assert kept and sound == expected
    assert not sound or out == expected_out


@pytest.mark.parametrize("spec", ["all|fp8(block=256, format=e4m3)", "all|fp8(block=256, format=e5m2)"])
def test_every_fp8_code_means_the_same(triton, spec):
    plan = runs(parse(spec), 256)[0].plan
    message = np.concatenate([np.array([0x80, 0x3F], np.uint8), np.arange(256, dtype=np.uint8)])
    _, found, _ = triton.submit(worker.decoded, "triton", plan, message, False).result()
    _, expected, _ = worker.decoded("torch", plan, message, False)
    np.testing.assert_array_equal(np.frombuffer(found, np.float32), np.frombuffer(expected, np.float32))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_vectors_of_the_wire_format(triton, vector):
    x = np.frombuffer(bytes.fromhex(vector["x"]), np.float32)
    message, out = triton.submit(worker.by_codec, "triton", vector["codec"], x).result()
    assert (message.hex(), out.hex()) == (vector["message"], vector["decoded"])


def test_the_widest_row_and_no_wider(triton):
    fits, wider = (runs(parse(f"topk(0.02, chunk={chunk})|int4"), 2 * chunk)[0].plan for chunk in (16384, 20000))
    assert triton.submit(worker.supports, fits).result()
    assert not triton.submit(worker.supports, wider).result()
    x = values("normal", 16384, 5)
    same(triton, fits, x, x * np.float32(0.5), x, -0.5)


@pytest.mark.parametrize("spec", SPECS)
def test_every_plan_that_is_tested_here_is_supported(triton, spec):
    assert triton.submit(worker.supports, runs(parse(spec), 1024)[0].plan).result()


def test_auto_never_takes_the_interpreter(triton):
    plan = runs(parse("all|int4"), 64)[0].plan
    assert triton.submit(worker.chosen_by_auto, plan, "cpu").result() != "triton"
    assert KERNELS.get("triton").speed < KERNELS.get("torch").speed
