import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import choose
from trainingkit.data import SOURCES, Corpus, Source, digest, split
from trainingkit.data.digest import digest_files
from trainingkit.data.files import DataFile, find_files
from trainingkit.data.stream import MappedFiles, Stretch
from trainingkit.data.windows import Windows


def open_data(**table) -> Corpus:
    return choose(SOURCES, table, field="data").open()


def everything(side: Source) -> bytes:
    return b"".join(bytes(side.sample(i)["input_ids"].astype(np.uint8)) for i in range(len(side)))


def explained(error: DataError) -> bool:
    return None not in (error.field, error.found, error.expected, error.next_step)


@pytest.fixture
def make(tmp_path: Path):
    def write(files: dict[str, bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / "corpus" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path / "corpus"

    return write


def test_the_standard_library_is_always_there() -> None:
    corpus = open_data(kind="stdlib")
    info = corpus.info
    assert info.task == "language" and info.licence == "PSF-2.0" and info.vocab_size == 256
    assert info.train_samples == len(corpus.train) > 10_000 and info.validation_samples == len(corpus.validation) > 300
    assert info.bytes_per_token == 1.0 and info.seq_len == 256 and "left out" in info.notes[0]
    sample = corpus.train.sample(0)
    assert sample["input_ids"].dtype == np.int64 and sample["input_ids"].shape == (256,)
    assert np.array_equal(sample["input_ids"], sample["labels"])
    assert open_data(kind="stdlib", seq_len=64).info.sha256 == info.sha256


def test_the_standard_library_is_split_by_file() -> None:
    corpus = open_data(kind="stdlib")
    held, learned = everything(corpus.validation), everything(corpus.train)
    root = Path(sysconfig.get_path("stdlib"))
    for name in ("argparse.py", "json/decoder.py", "heapq.py"):
        text = (root / name).read_bytes()
        assert (text in held) != (text in learned)
    assert learned.count(b"\0") > 300


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), data=st.data(), separator=st.sampled_from([None, 0])
)
def test_mapped_files_read_as_one_row(tmp_path_factory, sizes, data, separator) -> None:
    folder = tmp_path_factory.mktemp("row")
    contents = [bytes((17 * i + j) % 255 + 1 for j in range(size)) for i, size in enumerate(sizes)]
    files = []
    for i, content in enumerate(contents):
        path = folder / str(i)
        path.write_bytes(content)
        files.append(DataFile(path.name, path, len(content)))
    whole = b"".join(c + (b"\0" if separator is not None else b"") for c in contents)
    stream = MappedFiles(files, separator=separator)
    assert len(stream) == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert bytes(stream.read(start, stop).astype(np.uint8)) == whole[start:stop]


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 300), share=st.floats(0.001, 0.999), seq_len=st.integers(2, 40))
def test_windows_never_cross_the_border(n: int, share: float, seq_len: int) -> None:
    class Positions:
        def __len__(self) -> int:
            return n

        def read(self, start: int, stop: int) -> np.ndarray:
            return np.arange(start, stop)

    border = n - round(n * share)
    train = Windows(Stretch(Positions(), 0, border), seq_len)
    held = Windows(Stretch(Positions(), border, n), seq_len)
    seen = [set(side.sample(i)["input_ids"].tolist()) for side in (train, held) for i in range(len(side))]
    assert all(max(window) < border for window in seen[: len(train)])
    assert all(min(window) >= border for window in seen[len(train) :])
    assert sum(map(len, seen)) == len(set().union(*seen)) if seen else True
    with pytest.raises(IndexError):
        held.sample(len(held))


def test_few_files_keep_the_tail_for_validation(make) -> None:
    folder = make({"b.txt": b"b" * 500, "a.txt": b"a" * 500, "empty.txt": b"", ".hidden": b"h"})
    corpus = open_data(kind="text", path=str(folder), seq_len=10, validation_share=0.1)
    assert everything(corpus.train).startswith(b"a" * 500 + b"\0b")
    assert set(everything(corpus.validation)) - {0} == {ord("b")}
    assert "1 empty files were left out." in corpus.info.notes
    assert "1 files with hidden names were left out." in corpus.info.notes


def test_many_files_are_split_by_name(make) -> None:
    folder = make({f"{i:03d}.txt": bytes([i]) * 40 for i in range(1, 61)})
    corpus = open_data(kind="text", path=str(folder), seq_len=8, validation_share=0.2)
    train, held = set(everything(corpus.train)) - {0}, set(everything(corpus.validation)) - {0}
    assert not train & held and train | held == set(range(1, 61))
    assert 4 <= len(held) <= 24


def test_a_file_and_a_glob_work_too(make) -> None:
    folder = make({"x/one.txt": b"1" * 100, "y/two.txt": b"2" * 100, "y/two.md": b"3" * 100})
    one = open_data(kind="text", path=str(folder / "x" / "one.txt"), seq_len=5, validation_share=0.2)
    assert set(everything(one.train)) == {ord("1")}
    two = open_data(kind="text", path=str(folder / "**" / "*.txt"), seq_len=5, validation_share=0.2)
    assert set(everything(two.train)) <= {ord("1"), ord("2"), 0}


def test_where_a_corpus_lies_does_not_change_it(make, tmp_path: Path) -> None:
    folder = make({"b.txt": b"b" * 500, "sub/a.txt": b"a" * 500})
    before = open_data(kind="text", path=str(folder), seq_len=10).info.sha256
    folder.rename(tmp_path / "elsewhere")
    assert open_data(kind="text", path=str(tmp_path / "elsewhere"), seq_len=10).info.sha256 == before


def test_the_digest_sees_every_byte_of_small_data_and_names_and_sizes_of_large(make, monkeypatch) -> None:
    folder = make({"a.txt": b"a" * 5000, "b.txt": b"b" * 70_000})
    plain = digest_files(find_files(str(folder))[0])
    changed = bytearray(b"b" * 70_000)
    changed[41_234] ^= 1
    make({"b.txt": bytes(changed)})
    assert digest_files(find_files(str(folder))[0]) != plain
    monkeypatch.setattr(digest, "FULL_UP_TO_BYTES", 1000)
    monkeypatch.setattr(digest, "BLOCK_BYTES", 16)
    monkeypatch.setattr(digest, "SAMPLED_BLOCKS", 100)
    files = find_files(str(folder))[0]
    sampled = digest_files(files)
    assert "evenly spread" in digest.covers(files)[0] and sampled == digest_files(files)
    (folder / "b.txt").rename(folder / "c.txt")
    assert digest_files(find_files(str(folder))[0]) != sampled
    assert [(f.name, start) for f, start in digest._spread(files)][-1] == ("b.txt", 70_000 - 16)


@pytest.mark.parametrize(
    ("path", "files", "problem"),
    [
        ("nowhere", {}, "nothing at this path"),
        ("corpus/*.none", {"a.txt": b"a"}, "nothing at this path"),
        ("corpus", {"empty": b""}, "nothing to read at this path"),
        ("corpus", {"a.txt": b"short"}, "train side is shorter than one window"),
        ("corpus", {"a.txt": b"x" * 300}, "validation side is shorter than one window"),
    ],
)
def test_bad_paths_are_explained(make, tmp_path: Path, path: str, files: dict[str, bytes], problem: str) -> None:
    make(files)
    with pytest.raises(DataError, match=problem) as caught:
        open_data(kind="text", path=str(tmp_path / path))
    assert explained(caught.value)


def test_what_is_no_readable_file_is_refused(make) -> None:
    folder = make({"a.txt": b"a" * 1000})
    (folder / "broken").symlink_to(folder / "gone")
    with pytest.raises(DataError, match="cannot be read: No such file") as caught:
        open_data(kind="text", path=str(folder))
    assert explained(caught.value) and "broken" in str(caught.value)
    (folder / "broken").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="not a regular file"):
        open_data(kind="text", path=str(folder))


def test_linked_folders_are_read_once(make) -> None:
    folder = make({"sub/a.txt": b"a" * 1000})
    (folder / "sub" / "loop").symlink_to(folder)
    assert [file.name for file in find_files(str(folder))[0]] == ["sub/a.txt"]


def test_a_file_that_shrinks_is_an_error_not_a_crash(make) -> None:
    folder = make({"a.txt": b"a" * 1000})
    corpus = open_data(kind="text", path=str(folder), seq_len=10)
    make({"a.txt": b"a" * 10})
    with pytest.raises(DataError, match="changed while it was in use") as caught:
        corpus.train.sample(90)
    assert explained(caught.value)


@settings(deadline=None, max_examples=50)
@given(names=st.lists(st.text(max_size=8), min_size=2, max_size=60, unique=True), share=st.floats(0.001, 0.999))
def test_split_by_name_fills_both_sides_and_ignores_company(names: list[str], share: float) -> None:
    chosen = split.by_name(names, share)
    assert 0 < sum(chosen) < len(names)
    assert split.by_name(names[::-1], share) == chosen[::-1]


@settings(deadline=None, max_examples=50)
@given(n=st.integers(0, 400), share=st.floats(0.001, 0.999))
def test_split_by_rows_is_a_partition(n: int, share: float) -> None:
    train, held = split.rows(n, share)
    assert np.array_equal(np.sort(np.concatenate([train, held])), np.arange(n))
    assert n < 2 or (len(train) and len(held))


def test_a_wrong_kind_or_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'stdlib'") as caught:
        open_data(kind="stdlb")
    assert caught.value.field == "data.kind"
    assert SOURCES.names() == ["hf", "images", "python", "stdlib", "text", "tokens"]
    with pytest.raises(ConfigError, match="Did you mean 'seq_len'"):
        open_data(kind="text", path="x", seqlen=3)


def test_looking_up_sources_imports_nothing_heavy() -> None:
    code = (
        "import sys, trainingkit.data as d; d.SOURCES.names();"
        "heavy = {'torch', 'datasets', 'PIL', 'transformers', 'tokenizers', 'pyarrow', 'pandas', 'rich'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
