"""What a source leaves out or cannot use is said: in a note, or in an error."""

import numpy as np
import pytest
from PIL import Image

from trainingkit.core.errors import DataError
from trainingkit.core.section import choose
from trainingkit.data import SOURCES
from trainingkit.data.batch import gather
from trainingkit.data.tokenize import BuildOptions, build_tokens


def open_images(path):
    return choose(SOURCES, {"kind": "images", "path": str(path)}, field="data").open()


def write_images(folder, mode="L"):
    folder.mkdir(parents=True)
    for number in range(4):
        pixels = np.full((4, 4), 1000, np.uint16) if mode == "I;16" else np.zeros((4, 4), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_images_outside_of_both_parts_are_noted(tmp_path):
    for part in ("train", "validation", "test"):
        write_images(tmp_path / part / "cat")
    corpus = open_images(tmp_path)
    assert (len(corpus.train), len(corpus.validation)) == (4, 4)
    assert "4 images in neither the train nor the validation folder were left out." in corpus.info.notes


def test_images_of_16_bits_are_refused_not_clipped(tmp_path):
    write_images(tmp_path / "cat", mode="I;16")
    with pytest.raises(DataError, match="cannot be used") as caught:
        open_images(tmp_path).train.sample(0)
    assert "more than 8 bits a channel" in str(caught.value.found)


class Plain:
    """A user's Source that gives plain numbers and lists."""

    def __len__(self):
        return 3

    def sample(self, index):
        return {"input_ids": [index, index + 1], "labels": index}


def test_a_source_of_plain_numbers_becomes_batches():
    batch = gather(Plain(), np.array([0, 2]))
    assert batch["input_ids"].tolist() == [[0, 1], [2, 3]]
    assert batch["labels"].tolist() == [0, 2]


def test_a_full_disk_ends_a_build_in_words(tmp_path):
    (tmp_path / "a.txt").write_text("one line of text\n" * 2000)
    output = tmp_path / "tokens"

    def fill_the_disk(stage, done, total):
        shard = output / "train-00000.bin"
        if stage == "train tokenizer" and not shard.is_symlink():
            shard.symlink_to("/dev/full")

    with pytest.raises(DataError, match="cannot be written: No space left on device") as caught:
        build_tokens(str(tmp_path / "a.txt"), output, BuildOptions(train_bpe=300), fill_the_disk)
    assert caught.value.field == "OUTPUT"
    assert "remove the half-built folder" in str(caught.value.next_step)
    assert not (output / "manifest.json").exists()
