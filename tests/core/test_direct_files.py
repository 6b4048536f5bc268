import errno
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainingkit.core.directio import BLOCK_BYTES, SECTOR_BYTES, DirectWriter

EDGES = [0, 1, SECTOR_BYTES - 1, SECTOR_BYTES, SECTOR_BYTES + 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1]


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """On a disk, and on a file system in memory, which may take no direct access."""
    if request.param == "disk":
        return tmp_path
    made = Path("/dev/shm") / f"trainingkit-test-{os.getpid()}-{tmp_path.name}"
    made.mkdir()
    request.addfinalizer(lambda: ([path.unlink() for path in made.iterdir()], made.rmdir()))
    return made


@pytest.mark.parametrize("size", [*EDGES, 3 * BLOCK_BYTES + 17])
def test_a_file_holds_what_was_written(folder: Path, size: int):
    data = os.urandom(size)
    with DirectWriter(folder / "file") as handle:
        assert handle.write(data) == size
        assert handle.tell() == size
        assert handle.crc32 == zlib.crc32(data)
    assert (folder / "file").read_bytes() == data


@given(
    sizes=st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 70_000)), max_size=6),
    flushed=st.sets(st.integers(0, 5)),
)
def test_pieces_and_flushes_in_any_order_give_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], flushed: set[int]
):
    path = tmp_path_factory.mktemp("pieces") / "file"
    data = os.urandom(sum(sizes))
    at = 0
    with DirectWriter(path) as handle:
        for index, size in enumerate(sizes):
            handle.write(memoryview(data)[at : at + size])
            at += size
            if index in flushed:
                handle.flush()
                assert path.read_bytes() == data[:at]
        assert handle.crc32 == zlib.crc32(data)
    assert path.read_bytes() == data


def test_who_asks_for_the_descriptor_can_make_everything_durable(folder: Path):
    with DirectWriter(folder / "file") as handle:
        handle.write(b"seven b")
        os.fsync(handle.fileno())
        assert (folder / "file").read_bytes() == b"seven b"


def test_nothing_is_written_after_what_was_made_durable(folder: Path):
    path = folder / "file"
    with DirectWriter(path) as handle:
        handle.write(b"seven b")
        os.fsync(handle.fileno())
        path.write_bytes(b"another")
        handle.flush()
    assert path.read_bytes() == b"another"


def test_a_longer_file_of_that_name_is_gone(folder: Path):
    (folder / "file").write_bytes(b"x" * 100_000)
    with DirectWriter(folder / "file") as handle:
        handle.write(b"short")
    assert (folder / "file").read_bytes() == b"short"


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_full_disk_is_told_with_its_number_and_closes_the_file():
    before = open_files()
    with pytest.raises(OSError) as caught, DirectWriter(Path("/dev/full")) as handle:
        handle.write(bytes(10))
    assert caught.value.errno == errno.ENOSPC
    assert open_files() == before


def test_a_missing_folder_is_the_systems_own_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        DirectWriter(tmp_path / "none" / "file")
