"""Wrong tensors, shared memory and damaged messages are refused in words."""

import pytest
import torch

from trainingkit.codec import Codec
from trainingkit.core.errors import ConfigError, StepError
from trainingkit.kernels import KERNELS

ABLE = [name for name in KERNELS.names() if KERNELS.get(name).missing() is None]


def buffers(codec: Codec, n: int):
    return torch.ones(n), torch.zeros(n), torch.zeros(codec.message_bytes(n), dtype=torch.uint8), torch.zeros(n)


@pytest.mark.parametrize(
    ("which", "tensor", "words"),
    [
        (0, torch.ones(100, dtype=torch.float64), ["field:     x", "float64", "[100] float32"]),
        (0, torch.ones(10, 10), ["field:     x", "[10, 10]"]),
        (0, torch.ones(200)[::2], ["field:     x", "strided"]),
        (1, torch.ones(99), ["field:     residual", "[99] float32", "[100] float32"]),
        (2, torch.ones(5, dtype=torch.uint8), ["field:     message", "[5] uint8"]),
        (3, torch.ones(101), ["field:     new_residual"]),
    ],
)
def test_a_tensor_of_another_kind_is_refused(which, tensor, words):
    codec = Codec("all|int4")
    arguments = list(buffers(codec, 100))
    arguments[which] = tensor
    with pytest.raises(ConfigError) as caught:
        codec.encode(*arguments)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_new_residual_may_not_share_memory():
    codec = Codec("all|int4")
    x, residual, message, _ = buffers(codec, 100)
    for taken, name in ((x, "x"), (residual, "residual")):
        with pytest.raises(ConfigError, match=f"the memory of {name}\n"):
            codec.encode(x, residual, message, taken)


def test_a_message_cannot_be_cut_inside_a_chunk():
    codec = Codec("topk(0.05)|int4")
    assert codec.byte_offset(8192) == 2 * 272
    with pytest.raises(ConfigError, match="a multiple of 4096"):
        codec.byte_offset(100)


@pytest.mark.parametrize("kernel", ABLE)
@pytest.mark.parametrize("indices", [[5, 5, 7], [7, 6, 9], [1, 2, 100], [1, 2, 127]])
def test_damaged_indices_are_found_and_nothing_is_written_outside(kernel, indices):
    codec = Codec("topk(0.03, chunk=100)|fp32|bits", kernel=kernel)
    packed = sum(index << (7 * j) for j, index in enumerate(indices)).to_bytes(3, "little")
    message = torch.tensor(list(packed) + [0] * 12, dtype=torch.uint8)
    room = torch.full((300,), 4.0)
    with pytest.raises(StepError, match="do not ascend, or leave their chunk"):
        codec.decode(message, room[100:200])
    assert torch.equal(room[:100], torch.full((100,), 4.0)) and torch.equal(room[200:], torch.full((100,), 4.0))
