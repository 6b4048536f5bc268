import builtins
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import choose
from trainingkit.data import SOURCES, Corpus


def open_data(**table) -> Corpus:
    return choose(SOURCES, {"kind": "images"} | table, field="data").open()


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_idx(folder: Path, part: str, n: int, seed: int, packed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, 7, 5), dtype=np.uint8)
    labels = (np.arange(n) % 4).astype(np.uint8)
    for stem, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        content = gzip.compress(idx(values)) if packed else idx(values)
        (folder / (stem + ".gz" * packed)).write_bytes(content)
    return images, labels


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_give_normalised_images(tmp_path: Path, packed: bool) -> None:
    images, labels = write_idx(tmp_path, "train", 20, 1, packed)
    held, _ = write_idx(tmp_path, "t10k", 6, 2, packed)
    corpus = open_data(path=str(tmp_path), mean=[0.25], std=[0.125])
    assert corpus.info.image_shape == (1, 7, 5) and corpus.info.classes == 4 and corpus.info.task == "images"
    assert (corpus.info.train_samples, corpus.info.validation_samples) == (20, 6)
    sample = corpus.train.sample(3)
    assert sample["pixel_values"].dtype == np.float32 and sample["labels"].dtype == np.int64
    assert sample["labels"].shape == () and sample["labels"] == labels[3]
    np.testing.assert_allclose(sample["pixel_values"][0], (images[3] / 255 - 0.25) / 0.125, rtol=1e-5, atol=1e-6)
    plain = open_data(path=str(tmp_path)).validation.sample(5)["pixel_values"]
    np.testing.assert_allclose(plain[0], held[5] / 127.5 - 1, rtol=1e-5, atol=1e-6)


def test_without_t10k_a_share_of_train_is_held_out(tmp_path: Path) -> None:
    images, _ = write_idx(tmp_path, "train", 40, 1)
    corpus = open_data(path=str(tmp_path), validation_share=0.25)
    assert (len(corpus.train), len(corpus.validation)) == (30, 10) and "random share" in corpus.info.notes[0]
    sides = [side.sample(i)["pixel_values"] for side in (corpus.train, corpus.validation) for i in range(len(side))]
    assert len({values.tobytes() for values in sides}) == len(images)


def write_folders(root: Path, sizes=((6, 4),), mode: str = "RGB") -> None:
    for number, name in enumerate(("cat", "dog", "emu")):
        (root / name).mkdir(parents=True)
        for i in range(12):
            size = sizes[i % len(sizes)]
            Image.new(mode, size, 80 * number + i if mode == "L" else (80 * number, i, 7)).save(
                root / name / f"{i}.png"
            )


def test_class_folders_give_images(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "README.txt").write_text("no image")
    corpus = open_data(path=str(tmp_path), validation_share=0.2, mean=[0.0], std=[1.0])
    assert corpus.info.image_shape == (3, 4, 6) and corpus.info.classes == 3
    assert len(corpus.train) + len(corpus.validation) == 36 and len(corpus.validation) > 0
    assert "1 files that are no images in a class folder were left out." in corpus.info.notes
    for i in range(len(corpus.train)):
        sample = corpus.train.sample(i)
        assert sample["pixel_values"].shape == (3, 4, 6)
        assert round(float(sample["pixel_values"][0, 0, 0]) * 255) == 80 * int(sample["labels"])


def test_a_validation_folder_is_used(tmp_path: Path) -> None:
    write_folders(tmp_path / "train", mode="L")
    write_folders(tmp_path / "val", mode="L")
    corpus = open_data(path=str(tmp_path))
    assert (len(corpus.train), len(corpus.validation)) == (36, 36) and corpus.info.image_shape == (1, 4, 6)
    assert [int(corpus.validation.sample(i)["labels"]) for i in (0, 12, 24)] == [0, 1, 2]


def test_sizes_must_agree_or_be_asked_for(tmp_path: Path) -> None:
    write_folders(tmp_path, sizes=((6, 4), (8, 8)))
    corpus = open_data(path=str(tmp_path))
    with pytest.raises(DataError, match="cannot be used") as caught:
        for i in range(len(corpus.train)):
            corpus.train.sample(i)
    assert "8 x 8 pixels" in str(caught.value.found) and "data.image_size" in str(caught.value.expected)
    resized = open_data(path=str(tmp_path), image_size=10, channels=1)
    assert resized.info.image_shape == (1, 10, 10)
    assert {resized.train.sample(i)["pixel_values"].shape for i in range(len(resized.train))} == {(1, 10, 10)}


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    write_folders(tmp_path)
    for path in (tmp_path / "dog").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    corpus = open_data(path=str(tmp_path))
    with pytest.raises(DataError, match=r"cannot be used[\s\S]*dog"):
        for i in range(len(corpus.train)):
            corpus.train.sample(i)


def break_magic(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(b"\1" + path.read_bytes()[1:])


def cut_images(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])


def fewer_labels(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))


def no_labels(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte").unlink()


def empty_file(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (break_magic, "not a whole IDX file"),
        (cut_images, "not a whole IDX file"),
        (empty_file, "not a whole IDX file"),
        (fewer_labels, "do not match"),
        (no_labels, "IDX file is missing"),
    ],
)
def test_damaged_idx_files_are_explained(tmp_path: Path, damage, problem: str) -> None:
    write_idx(tmp_path, "train", 20, 1)
    damage(tmp_path)
    with pytest.raises(DataError, match=problem) as caught:
        open_data(path=str(tmp_path))
    assert None not in (caught.value.field, caught.value.found, caught.value.expected, caught.value.next_step)


def test_a_damaged_gz_is_explained(tmp_path: Path) -> None:
    write_idx(tmp_path, "train", 20, 1, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a whole IDX file"):
        open_data(path=str(tmp_path))


def test_bad_settings_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing at this path"):
        open_data(path=str(tmp_path / "none"))
    write_folders(tmp_path)
    with pytest.raises(ConfigError, match="cannot normalise") as caught:
        open_data(path=str(tmp_path), mean=[0.1, 0.2])
    assert caught.value.field == "data.mean" and caught.value.expected == "1 or 3 numbers"
    with pytest.raises(ConfigError, match="cannot normalise"):
        open_data(path=str(tmp_path), std=[0.0])


def test_pillow_is_asked_for_by_name(tmp_path: Path, monkeypatch) -> None:
    write_folders(tmp_path)
    real = builtins.__import__

    def without_pillow(name: str, *args, **kwargs):
        if name == "PIL":
            raise ImportError("No module named 'PIL'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(DataError, match=r"pip install 'trainingkit\[images\]'"):
        open_data(path=str(tmp_path))
