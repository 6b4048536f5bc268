import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.recovery.manifest import BadManifest, FileRecord, Manifest, parse, read, render

EXAMPLE = Manifest(120, 2, 1234.5, {"rank-0.json": FileRecord(10, 0xDEADBEEF), "a.safetensors": FileRecord(0, 0)})


def test_round_trip():
    assert parse(render(EXAMPLE).encode()) == EXAMPLE
    assert EXAMPLE.total_bytes == 10


def test_every_flipped_bit_is_noticed():
    raw = render(EXAMPLE).encode()
    for position in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(BadManifest):
            parse(bytes(damaged))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_every_cut_and_every_foreign_text_is_noticed(data):
    raw = render(EXAMPLE).encode()
    text = data.draw(st.binary(max_size=60) | st.integers(0, len(raw) - 1).map(lambda n: raw[:n]))
    with pytest.raises(BadManifest):
        parse(text)


@pytest.mark.parametrize("name", ["../x", "", ".", "a/b", "manifest.json"])
def test_names_that_leave_the_folder_are_refused(name):
    with pytest.raises(BadManifest, match="not the name of a file"):
        parse(render(Manifest(1, 1, 0.0, {name: FileRecord(1, 1)})).encode())


@pytest.mark.parametrize(
    "text", ["[]", "1", "null", '{"format": 1}', '{"format": 2}', '{"format": 1, "files": []}', "[" * 99999]
)
def test_json_of_another_shape_is_refused(text):
    with pytest.raises(BadManifest):
        parse(text.encode())


def test_a_folder_without_one_was_not_finished(tmp_path):
    with pytest.raises(BadManifest, match="not finished"):
        read(tmp_path)
