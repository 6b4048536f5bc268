"""Specs read, print and fail in words; sizes are known without torch."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import message_bytes, parse
from trainingkit.codec.size import granule
from trainingkit.core.errors import ConfigError


@settings(max_examples=60, deadline=None)
@given(
    density=st.floats(1e-6, 1.0),
    chunk=st.integers(1, 65536),
    block=st.integers(1, 512).map(lambda k: 8 * k),
    quantiser=st.sampled_from(["int2", "int3", "int4", "int8", "fp8"]),
    packing=st.sampled_from(["", "|bits", "|bitmap", "|elias_fano"]),
)
def test_a_spec_prints_and_reads_back(density, chunk, block, quantiser, packing):
    spec = parse(f"topk(density={density}, chunk={chunk})|{quantiser}(block={block}){packing}")
    assert parse(str(spec)) == spec
    assert hash(parse(str(spec))) == hash(spec)
    assert parse(spec) is spec


def test_short_forms_mean_the_same():
    full = "topk(density=0.05, chunk=4096)|int4(block=64)|elias_fano"
    for text in ("topk(0.05)|int4", " topk( 0.05 , 4096 ) | int4(64) ", "topk(chunk=4096, density=0.05)|int4"):
        assert str(parse(text)) == full
    assert str(parse("all|fp32")) == "all|fp32"
    assert str(parse("all|fp8")) == str(parse("all|fp8(64, e4m3)")) == "all|fp8(block=64, format=e4m3)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("al|int4", ["no selection called 'al'", "one of all, topk", "Did you mean 'all'?"]),
        ("all|int5", ["no quantiser called 'int5'", "bf16, fp32, fp8, int2, int3, int4, int8"]),
        ("all|fp8(format=e4m2)", ["codec.fp8.format", "found:     'e4m2'", "'e4m3' or 'e5m2'"]),
        ("topk(0.1)|int4|bit", ["no index packing called 'bit'", "Did you mean 'bits'?"]),
        ("all|int4(blok=64)", ["codec.int4.blok", "Did you mean 'block'?"]),
        ("all|int4(block=12)", ["codec.int4.block", "found:     12", "a multiple of 8"]),
        ("topk(density=0)|int4", ["codec.topk.density", "greater than 0"]),
        ("topk(chunk=100000)|int4", ["codec.topk.chunk", "65536"]),
        ("all|int4(block=big)", ["codec.int4.block", "found:     'big'", "integer"]),
        ("all|int4|bits", ["sends no indices", "Remove '|bits'."]),
        ("int4", ["not a codec we can read", "selection|quantiser"]),
        ("all|int4(64", ["cannot be read", "'int4(64'", "name(key=value)"]),
        ("all(3)|int4", ["has no place", "no settings"]),
        ("topk(chunk=64, 0.1)|int4", ["has no place", "density, chunk"]),
        ("topk(0.1, density=0.2)|int4", ["given twice", "codec.topk.density"]),
    ],
)
def test_a_bad_spec_is_refused_in_words(text, words):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("spec", "n", "expected"),
    [
        ("all|fp32", 10, 40),
        ("all|bf16", 10, 20),
        ("all|int4", 64, 2 + 32),
        ("all|int4", 65, 2 + 32 + 2 + 1),
        ("all|int8", 130, 66 + 66 + 4),
        ("all|int3", 70, 2 + 24 + 2 + 3),
        ("all|int2", 326, 1 + 64 + 1 + 18),
        ("all|fp8(format=e5m2)", 130, 66 + 66 + 4),
        ("topk(0.05)|int4|bits", 4096, 308 + 3 * 34 + 2 + 7),
        ("topk(0.05)|int4|bits", 4097, 419 + 2 + 2 + 1),
        ("topk(0.05)|int4", 4096, 161 + 3 * 34 + 2 + 7),
        ("topk(0.05)|int4|bitmap", 4096, 512 + 3 * 34 + 2 + 7),
        ("topk(0.05, chunk=1)|fp32", 3, 12),
        ("all|int4", 0, 0),
    ],
)
def test_sizes_by_hand(spec, n, expected):
    assert message_bytes(spec, n) == expected


@settings(max_examples=60, deadline=None)
@given(
    spec=st.sampled_from(["all|int4", "all|int8(block=24)", "all|bf16", "topk(0.05)|int4", "topk(0.3, chunk=10)|fp32"]),
    first=st.integers(0, 50),
    rest=st.integers(0, 20000),
)
def test_sizes_add_up_over_slices(spec, first, rest):
    start = first * granule(spec)
    assert message_bytes(spec, start) + message_bytes(spec, rest) == message_bytes(spec, start + rest)


def test_sizes_need_neither_torch_nor_numpy():
    code = "import sys; from trainingkit.codec.size import message_bytes; message_bytes('topk(0.05)|int4', 10**6);"
    code += "print([name for name in ('torch', 'numpy', 'numba') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
