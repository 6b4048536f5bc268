"""docs/wire-format.md is right: its vectors decode with a reader written from the page, and the code writes them."""

import json
import re
import struct
from pathlib import Path

import pytest
import torch
import wire_reader

from trainingkit.codec import Codec, message_bytes, parse
from trainingkit.codec.packings import PACKINGS
from trainingkit.codec.quantisers import QUANTISERS
from trainingkit.codec.selections import SELECTIONS
from trainingkit.kernels import KERNELS

PAGE = Path(__file__).parents[2] / "docs" / "wire-format.md"
VECTORS = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1))


def floats(text: str) -> torch.Tensor:
    raw = bytes.fromhex(text)
    return torch.tensor(struct.unpack(f"<{len(raw) // 4}f", raw))


def test_page_has_a_vector_for_each_part():
    codecs = " ".join(vector["codec"] for vector in VECTORS)
    names = [*SELECTIONS.names(), *QUANTISERS.names(), *PACKINGS.names(), "format=e5m2"]
    assert [name for name in names if name not in codecs] == []


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_second_reader_decodes_the_vector(vector):
    decoded = floats(vector["decoded"])
    found = wire_reader.decode(vector["codec"], bytes.fromhex(vector["message"]), len(decoded))
    assert struct.pack(f"<{len(found)}f", *found).hex() == vector["decoded"]


@pytest.mark.parametrize("kernel", [name for name in KERNELS.names() if KERNELS.get(name).missing() is None])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_code_writes_and_reads_the_vector(vector, kernel):
    x = floats(vector["x"])
    codec = Codec(vector["codec"], kernel=kernel)
    message = torch.zeros(message_bytes(vector["codec"], len(x)), dtype=torch.uint8)
    assert codec.encode(x, None, message, None)
    assert bytes(message.tolist()).hex() == vector["message"]
    out = torch.empty_like(x)
    codec.decode(message, out)
    assert struct.pack(f"<{len(x)}f", *out.tolist()).hex() == vector["decoded"]


def test_second_reader_agrees_on_random_messages():
    generator = torch.Generator().manual_seed(5)
    dense = [f"all|{name}(block=24)" for name in ("int8", "int4", "int3", "int2", "fp8")]
    sparse = [f"topk(density=0.2, chunk=50)|int4(block=8)|{packing}" for packing in PACKINGS.names()]
    for spec in (str(parse(spec)) for spec in dense + sparse):
        codec = Codec(spec, kernel="torch")
        x = torch.randn(333, generator=generator)
        message, out = torch.zeros(codec.message_bytes(333), dtype=torch.uint8), torch.empty(333)
        codec.encode(x, None, message, None)
        codec.decode(message, out)
        assert wire_reader.decode(spec, bytes(message.tolist()), 333) == out.tolist()
