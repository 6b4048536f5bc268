import json
import random
import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from trainingkit.cli.data_build import data_build
from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import choose
from trainingkit.core.toml import apply_overrides
from trainingkit.data import SOURCES, documents
from trainingkit.data.documents import pieces, two_sides
from trainingkit.data.files import find_files
from trainingkit.data.manifest import read_manifest
from trainingkit.data.shards import ShardWriter
from trainingkit.data.tokenize import BuildOptions, build_tokens

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "über", "naïve", "東京", "def", "return"]


def quiet(stage: str, done: int, total: int) -> None:
    pass


def text_of(seed: int, words: int = 400) -> str:
    draw = random.Random(seed)
    return "".join(draw.choice(WORDS) + draw.choice("   \n") for _ in range(words))


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for i in range(30):
        (folder / f"{i:02d}.txt").write_text(text_of(i), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def built(texts: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "tokens"
    build_tokens(str(texts), folder, BuildOptions(train_bpe=300, shard_bytes=5000, validation_share=0.2), quiet)
    return folder


def side_ids(folder: Path, side: str) -> np.ndarray:
    manifest = read_manifest(folder)
    return np.concatenate([np.fromfile(folder / s.file, manifest.numpy_dtype) for s in getattr(manifest, side).shards])


def test_every_document_comes_back_and_sides_are_apart(texts: Path, built: Path) -> None:
    manifest = read_manifest(built)
    tokenizer = Tokenizer.from_file(str(built / "tokenizer" / "tokenizer.json"))
    assert manifest.vocab_size == 300 and manifest.dtype == "uint16" and len(manifest.train.shards) > 2
    assert all(shard.n_bytes <= 5000 for shard in manifest.train.shards)
    decoded: dict[str, list[str]] = {}
    for side in ("train", "validation"):
        ids = side_ids(built, side)
        ends = np.flatnonzero(ids == manifest.separator_id)
        decoded[side] = [tokenizer.decode(part.tolist()) for part in np.split(ids, ends + 1)[:-1]]
        decoded[side] = [text.removesuffix("<|endoftext|>") for text in decoded[side]]
        assert getattr(manifest, side).documents == len(decoded[side]) > 0
        assert getattr(manifest, side).text_bytes == sum(len(text.encode()) for text in decoded[side])
        assert getattr(manifest, side).tokens == len(ids)
    assert sorted(decoded["train"] + decoded["validation"]) == sorted(text_of(i) for i in range(30))


def test_the_source_reads_what_was_built(built: Path) -> None:
    corpus = choose(SOURCES, {"kind": "tokens", "path": str(built), "seq_len": 16}, field="data").open()
    ids = side_ids(built, "train").astype(np.int64)
    got = [corpus.train.sample(i)["input_ids"] for i in range(len(corpus.train))]
    assert np.array_equal(np.concatenate(got), ids[: len(ids) // 16 * 16])
    assert corpus.info.vocab_size == 300 and 1 < corpus.info.bytes_per_token < 8


def test_the_same_build_gives_the_same_bytes(texts: Path, built: Path, tmp_path: Path) -> None:
    options = BuildOptions(train_bpe=300, shard_bytes=5000, validation_share=0.2)
    build_tokens(str(texts), tmp_path / "again", options, quiet)
    for path in sorted(built.rglob("*")):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(built)).read_bytes() == path.read_bytes(), path.name


def test_transformers_loads_the_tokenizer_and_it_can_be_used_for_another_build(texts, built, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(built / "tokenizer")
    assert (
        tokenizer.eos_token == "<|endoftext|>"
        and tokenizer.decode(tokenizer("naïve 東京")["input_ids"]) == "naïve 東京"
    )
    options = BuildOptions(tokenizer=built / "tokenizer", validation_share=0.2)
    seen: list[tuple[str, int, int]] = []
    build_tokens(str(texts), tmp_path / "again", options, lambda *call: seen.append(call))
    assert np.array_equal(side_ids(tmp_path / "again", "train"), side_ids(built, "train"))
    assert seen[-1] == ("tokenise", seen[-1][2], seen[-1][2])


@settings(deadline=None, max_examples=40)
@given(
    content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode),
    block=st.integers(1, 40),
    cut=st.integers(2, 60),
)
def test_pieces_are_the_document_whatever_the_blocks(tmp_path_factory, content: bytes, block: int, cut: int) -> None:
    path = tmp_path_factory.mktemp("doc") / "a.txt"
    path.write_bytes(b"x" + content)
    files, _ = find_files(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_BYTES", block)
        patch.setattr(documents, "LONGEST_PIECE", cut)
        got = list(pieces([documents.Span(files[0], 0, files[0].n_bytes)]))
    whole = (b"x" + content).decode(errors="surrogateescape")
    strays = sum("\udc80" <= char <= "\udcff" for char in whole)
    assert "".join(piece.text for piece in got) == documents._STRAY_BYTE.sub("\ufffd", whole)
    assert sum(piece.n_bytes for piece in got) == len(content) + 1
    assert sum(piece.replaced for piece in got) == strays
    assert [piece.last for piece in got] == [False] * (len(got) - 1) + [True]


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=5), share=st.floats(0.05, 0.95))
def test_few_files_are_cut_between_characters_and_nothing_is_lost(tmp_path_factory, texts, share) -> None:
    folder = tmp_path_factory.mktemp("few")
    for i, text in enumerate(texts):
        (folder / str(i)).write_bytes(text.encode())
    files, _ = find_files(str(folder))
    train, held = two_sides(files, share)
    got = [piece for span in (*train, *held) for piece in pieces([span])]
    assert "".join(piece.text for piece in got) == "".join(texts)
    assert not sum(piece.replaced for piece in got)


@settings(deadline=None, max_examples=30)
@given(parts=st.lists(st.lists(st.integers(0, 65535), max_size=20), max_size=8), shard_bytes=st.integers(2, 30))
def test_shards_hold_what_was_written(tmp_path_factory, parts, shard_bytes: int) -> None:
    folder = tmp_path_factory.mktemp("shards")
    writer = ShardWriter(folder, "train", "<u2", shard_bytes)
    for part in parts:
        writer.write(np.array(part, dtype=np.int64))
    sums = writer.close()
    content = b"".join((folder / each.file).read_bytes() for each in sums)
    assert np.frombuffer(content, "<u2").tolist() == [token for part in parts for token in part]
    assert all(0 < each.n_bytes <= shard_bytes for each in sums)


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good line\n" * 50 + b"\xff\xfe bad\n" + b"good line\n" * 50)
    made = build_tokens(str(tmp_path / "a.txt"), tmp_path / "out", BuildOptions(train_bpe=260), quiet)
    assert made.notes == ("2 bytes that are no UTF-8 became U+FFFD.",)


def damage_flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [damage_flip, damage_cut, Path.unlink])
@pytest.mark.parametrize("name", ["train-00001.bin", "validation-00000.bin", "tokenizer/tokenizer.json"])
def test_damage_is_found(built: Path, tmp_path: Path, damage, name: str) -> None:
    folder = tmp_path / "copy"
    for path in built.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(built)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    damage(folder / name)
    with pytest.raises(DataError, match="token folder is damaged") as caught:
        choose(SOURCES, {"kind": "tokens", "path": str(folder), "seq_len": 16}, field="data").open()
    assert Path(name).name in str(caught.value) and "CRC-32" in str(caught.value.expected)


def test_sizes_only_skips_the_crc(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    build_like(built, folder)
    damage_flip(folder / "train-00000.bin")
    table = {"kind": "tokens", "path": str(folder), "seq_len": 16}
    assert len(choose(SOURCES, table | {"verify": "size"}, field="data").open().train)
    with pytest.raises(DataError):
        choose(SOURCES, table | {"verify": "full"}, field="data").open()


def build_like(origin: Path, folder: Path) -> None:
    (folder / "tokenizer").mkdir(parents=True)
    for path in origin.rglob("*"):
        if path.is_file():
            (folder / path.relative_to(origin)).write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m | {"version": 2}, "version"),
        (lambda m: m | {"dtype": "float32"}, "dtype"),
        (lambda m: m | {"train": m["train"] | {"tokens": 1}}, "counts 1 tokens"),
        (lambda m: m | {"tokenizer": [m["tokenizer"][0] | {"file": "../../etc/passwd"}]}, "tokenizer.0.file"),
        (lambda m: [], "the file"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(built: Path, tmp_path: Path, change, said: str) -> None:
    manifest = json.loads((built / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(change(manifest)))
    with pytest.raises(DataError, match="not a finished token folder") as caught:
        read_manifest(tmp_path)
    assert said in str(caught.value.found)


def test_an_unfinished_build_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a finished token folder") as caught:
        read_manifest(tmp_path)
    assert "writes last" in str(caught.value.expected) and caught.value.next_step
    with pytest.raises(DataError, match="nothing at this path"):
        read_manifest(tmp_path / "none")


def test_the_command_builds_and_tells_what_it_made(texts: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / 'the "new" one'
    data_build(str(texts), output, train_bpe=280, shard_bytes="1 MB")
    said = capsys.readouterr()
    assert "(vocabulary 280)" in said.out and said.err == ""
    command = shlex.split(said.out.splitlines()[-1].partition(": ")[2])
    assert command[:3] == ["trainingkit", "train", "--set"]
    assert apply_overrides({}, command[3::2]) == {"data": {"kind": "tokens", "path": str(output)}}


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({}, "--tokenizer", "where the tokenizer comes from"),
        ({"train_bpe": 300, "tokenizer": Path("x")}, "--tokenizer", "where the tokenizer comes from"),
        ({"tokenizer": Path("nowhere")}, "--tokenizer", "cannot be loaded"),
        ({"train_bpe": 256}, "--train-bpe", "too small"),
        ({"train_bpe": 300, "validation_share": 1.0}, "--validation-share", "out of range"),
        ({"train_bpe": 300, "shard_bytes": "1 B"}, "--shard-bytes", "out of range"),
        ({"train_bpe": 300, "separator": "<|endoftxt|>"}, "--separator", "no token to put between"),
    ],
)
def test_bad_options_are_explained(texts: Path, tmp_path: Path, options: dict, field: str, problem: str) -> None:
    with pytest.raises((ConfigError, DataError), match=problem) as caught:
        data_build(str(texts), tmp_path / "out", **options)
    assert caught.value.field == field and caught.value.expected
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_nothing_is_overwritten(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(ConfigError, match="nothing is overwritten") as caught:
        data_build(str(texts), tmp_path, train_bpe=300)
    assert "mine.txt" in str(caught.value.found) and (tmp_path / "mine.txt").read_text() == "keep me"
    with pytest.raises(ConfigError, match="cannot be made"):
        data_build(str(texts), tmp_path / "mine.txt", train_bpe=300)


def test_missing_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing at this path") as caught:
        data_build(str(tmp_path / "none"), tmp_path / "out", train_bpe=300)
    assert caught.value.field == "INPUT" and not (tmp_path / "out").exists()
