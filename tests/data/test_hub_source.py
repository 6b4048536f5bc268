import builtins
from pathlib import Path

import pytest
from PIL import Image

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import choose
from trainingkit.data import SOURCES, Corpus, Source

datasets = pytest.importorskip("datasets")
TEXTS = [f"row {i} " + "ä" * (i % 7) for i in range(60)] + ["", None]


def open_data(path: Path, **table) -> Corpus:
    return choose(SOURCES, {"kind": "hf", "path": str(path)} | table, field="data").open()


def stream(side: Source) -> list[int]:
    return [token for i in range(len(side)) for token in side.sample(i)["input_ids"].tolist()]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    datasets.disable_progress_bars()
    ids = [[7 * i % 90 + j for j in range(i % 5)] for i in range(len(TEXTS))]
    table = datasets.Dataset.from_dict({"text": TEXTS, "ids": ids, "label": [i % 3 for i in range(len(TEXTS))]})
    table.save_to_disk(root / "one")
    both = datasets.DatasetDict({"train": table, "test": table.select(range(10, 20)), "more": table.select([1])})
    both.save_to_disk(root / "both")
    return root


def test_text_rows_become_bytes(saved: Path) -> None:
    corpus = open_data(saved / "both", text_column="text", seq_len=8)
    expected = b"".join((text or "").encode() + b"\0" for text in TEXTS)
    assert bytes(stream(corpus.train)) == expected[: len(expected) // 8 * 8]
    held = b"".join(text.encode() + b"\0" for text in TEXTS[10:20] if text)
    assert bytes(stream(corpus.validation)) == held[: len(held) // 8 * 8]
    assert corpus.info.vocab_size == 256 and corpus.info.bytes_per_token == 1.0
    assert "2 rows are empty." in corpus.info.notes and "Splits that were not read: more." in corpus.info.notes


def test_without_a_validation_split_rows_are_held_out(saved: Path) -> None:
    corpus = open_data(saved / "one", text_column="text", seq_len=2, validation_share=0.3)
    sides = [bytes(stream(side)).split(b"\0") for side in (corpus.train, corpus.validation)]
    rows = [{text.split(b" ")[1] for text in side[:-1] if text.startswith(b"row ")} for side in sides]
    assert not rows[0] & rows[1] and len(rows[0] | rows[1]) >= 58
    assert "random share" in corpus.info.notes[0]


def test_token_ids_are_packed(saved: Path) -> None:
    corpus = open_data(saved / "both", input_ids_column="ids", seq_len=4)
    expected = [7 * i % 90 + j for i in range(len(TEXTS)) for j in range(i % 5)]
    assert stream(corpus.train) == expected[: len(expected) // 4 * 4]
    assert corpus.info.vocab_size == max(expected) + 1 and corpus.info.bytes_per_token is None


def test_images_and_labels(tmp_path: Path) -> None:
    pictures = [Image.new("RGB", (5, 4), (i, 2 * i, 3)) for i in range(20)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    table = datasets.Dataset.from_dict({"image": pictures, "label": [i % 2 for i in range(20)]}, features=features)
    table.save_to_disk(tmp_path / "images")
    corpus = open_data(tmp_path / "images", image_column="image", validation_share=0.2, mean=[0.0], std=[1.0])
    assert corpus.info.image_shape == (3, 4, 5) and corpus.info.classes == 2
    assert (len(corpus.train), len(corpus.validation)) == (16, 4)
    seen = [side.sample(i) for side in (corpus.train, corpus.validation) for i in range(len(side))]
    numbers = [round(float(sample["pixel_values"][0, 0, 0]) * 255) for sample in seen]
    assert sorted(numbers) == list(range(20))
    assert all(number % 2 == int(sample["labels"]) for number, sample in zip(numbers, seen, strict=True))
    with pytest.raises(DataError, match="holds no images"):
        open_data(tmp_path / "images", image_column="label")


@pytest.mark.parametrize(
    ("table", "problem", "field"),
    [
        ({}, "does not say how to read", "data"),
        ({"text_column": "text", "input_ids_column": "ids"}, "does not say how to read", "data"),
        ({"text_column": "txt"}, "Did you mean 'text'", "data.text_column"),
        ({"text_column": "ids"}, "holds something else", "data.text_column"),
        ({"input_ids_column": "text"}, "holds something else", "data.input_ids_column"),
        ({"image_column": "text", "label_column": "ids"}, "holds something else", "data.label_column"),
        ({"text_column": "text", "seq_len": 100_000}, "shorter than one window", "data.seq_len"),
    ],
)
def test_bad_columns_are_explained(saved: Path, table: dict, problem: str, field: str) -> None:
    with pytest.raises((ConfigError, DataError), match=problem) as caught:
        open_data(saved / "one", **table)
    assert caught.value.field == field
    assert None not in (caught.value.found, caught.value.expected, caught.value.next_step)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        open_data(tmp_path, text_column="text")
    with pytest.raises(DataError, match="nothing at this path"):
        open_data(tmp_path / "none", text_column="text")


def test_the_package_is_asked_for_by_name(saved: Path, monkeypatch) -> None:
    real = builtins.__import__

    def without_datasets(name: str, *args, **kwargs):
        if name == "datasets":
            raise ImportError("No module named 'datasets'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_datasets)
    with pytest.raises(DataError, match=r"pip install 'trainingkit\[datasets\]'"):
        open_data(saved / "one", text_column="text")


def test_the_digest_follows_the_content(saved: Path, tmp_path: Path) -> None:
    before = open_data(saved / "one", text_column="text", seq_len=8).info.sha256
    assert open_data(saved / "one", input_ids_column="ids", seq_len=2).info.sha256 == before
    datasets.Dataset.from_dict({"text": ["other text"] * 50}).save_to_disk(tmp_path / "other")
    assert open_data(tmp_path / "other", text_column="text", seq_len=8).info.sha256 != before
