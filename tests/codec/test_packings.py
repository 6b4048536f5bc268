"""Index packings: the bytes are as foretold, the smallest is the default, and damage is found by every kernel."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import Codec, message_bytes, parse
from trainingkit.codec.packings import PACKINGS, smallest
from trainingkit.core.errors import StepError
from trainingkit.kernels import KERNELS

ABLE = [name for name in KERNELS.names() if KERNELS.get(name).missing() is None]


@pytest.mark.parametrize(
    ("count", "index_range", "expected"),
    [
        (64, 4096, {"bits": 96, "bitmap": 512, "elias_fano": 64}),
        (205, 4096, {"bits": 308, "bitmap": 512, "elias_fano": 103 + 58}),
        (16, 256, {"bits": 16, "bitmap": 32, "elias_fano": 8 + 4}),
        (1, 4096, {"bits": 2, "bitmap": 512, "elias_fano": 1 + 2}),
        (4096, 4096, {"bits": 6144, "bitmap": 512, "elias_fano": 1024}),
        (1, 1, {"bits": 0, "bitmap": 1, "elias_fano": 1}),
    ],
)
def test_index_bytes_by_hand(count, index_range, expected):
    assert {name: PACKINGS.get(name)().index_bytes(count, index_range) for name in expected} == expected


@settings(max_examples=80, deadline=None)
@given(index_range=st.integers(1, 65536), data=st.data())
def test_elias_fano_takes_no_more_than_any_number_of_low_bits_and_whole_bytes_allow(index_range, data):
    count = data.draw(st.integers(1, index_range))
    bits = min(count * low + count + (index_range - 1 >> low) for low in range(17))
    assert bits / 8 <= PACKINGS.get("elias_fano")().index_bytes(count, index_range) < bits / 8 + 2


@settings(max_examples=80, deadline=None)
@given(density=st.floats(1e-4, 1.0), chunk=st.sampled_from([1, 2, 100, 256, 4096, 65536]))
def test_the_default_is_the_smallest_and_the_text_names_it(density, chunk):
    given_none = parse(f"topk({density}, {chunk})|int4")
    assert given_none.names[2] == smallest(given_none.selection.rows(chunk)[0].keep, chunk)
    sizes = [message_bytes(f"topk({density}, {chunk})|int4|{name}", 4 * chunk) for name in PACKINGS.names()]
    assert message_bytes(given_none, 4 * chunk) == min(sizes)
    assert parse(str(given_none)) == given_none


@pytest.mark.parametrize(
    ("density", "packing"), [(0.0002, "bits"), (0.015625, "elias_fano"), (0.05, "elias_fano"), (0.5, "bitmap")]
)
def test_each_packing_is_the_smallest_somewhere(density, packing):
    assert parse(f"topk({density})|int4").names[2] == packing


@pytest.mark.parametrize("rows", [16, 160])
def test_two_bit_values_at_64_of_4096_take_at_most_0_16_bits_a_value(rows):
    n = 4096 * rows
    assert 8 * message_bytes("topk(0.015625)|int2", n) / n == 8 * (64 + 1 + 16) / 4096 <= 0.16


@pytest.mark.parametrize("packing", PACKINGS.names())
@settings(max_examples=20, deadline=None)
@given(chunk=st.sampled_from([1, 7, 64, 65, 300, 4096]), n=st.integers(1, 5000), data=st.data())
def test_any_set_of_indices_travels(packing, chunk, n, data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    x = torch.rand(n, generator=generator) + 0.5
    density = data.draw(st.floats(0.001, 1.0))
    out = []
    for kernel in ABLE:
        codec = Codec(f"topk({density}, {chunk})|fp32|{packing}", kernel=kernel)
        message, residual = torch.full((codec.message_bytes(n),), 0xA5, dtype=torch.uint8), torch.empty(n)
        assert codec.encode(x, None, message, residual)
        out.append(torch.empty(n))
        codec.decode(message, out[-1])
        assert torch.equal(out[-1] + residual, x)
        sent = sum(rows.count * rows.keep for rows in codec.spec.selection.rows(n))
        assert int((out[-1] > 0).sum()) == sent
    assert all(torch.equal(out[0], other) for other in out[1:])


@pytest.mark.parametrize("kernel", ABLE)
@pytest.mark.parametrize(
    ("packing", "index_bytes"),
    [
        ("bitmap", bytes([0, 0, 7] + 11 * [0])[:13]),
        ("bitmap", bytes([1, 1] + 11 * [0])),
        ("bitmap", bytes([15] + 12 * [0])),
        ("bitmap", bytes([3] + 11 * [0] + [0x80])),
        ("elias_fano", bytes([0x21, 0x04, 0b00000011])),
        ("elias_fano", bytes([0x21, 0x04, 0b00001111])),
        ("elias_fano", bytes([0x21, 0x04, 0b11100000])),
        ("elias_fano", bytes([0xFF, 0x7F, 0b00000111])),
    ],
    ids=["sound", "too few", "too many", "beyond the chunk", "too few", "too many", "beyond", "equal"],
)
def test_damage_is_found_and_nothing_is_written_outside(kernel, packing, index_bytes, request):
    codec = Codec(f"topk(0.03, chunk=100)|fp32|{packing}", kernel=kernel)
    message = torch.tensor([*index_bytes, *12 * [0]], dtype=torch.uint8)
    room = torch.full((300,), 4.0)
    if "sound" in request.node.callspec.id:
        codec.decode(message, room[100:200])
    else:
        with pytest.raises(StepError, match="do not ascend, or leave their chunk"):
            codec.decode(message, room[100:200])
    assert torch.equal(room[:100], torch.full((100,), 4.0)) and torch.equal(room[200:], torch.full((100,), 4.0))
