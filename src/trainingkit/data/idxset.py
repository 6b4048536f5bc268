"""A folder of four IDX files as a corpus; the t10k pair is validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import DataError
from trainingkit.data import split
from trainingkit.data.contract import Corpus
from trainingkit.data.digest import covers, digest_files
from trainingkit.data.files import DataFile
from trainingkit.data.idx import find_idx, read_idx
from trainingkit.data.images import Normaliser


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in one array. images: [n, H, W] uint8; labels: [n]; rows: the ones that belong to this side."""

    images: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    normaliser: Normaliser

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """See Normaliser.sample."""
        row = self.rows[index]
        return self.normaliser.sample(self.images[row], int(self.labels[row]))


def open_idx(folder: Path, mean: Sequence[float], std: Sequence[float], share: float) -> Corpus:
    """Train from `train-*`, validation from `t10k-*` or, without it, a fixed random `share` of train.

    Raises:
        DataError: a file is missing or damaged, counts differ, or there is nothing for a side.
    """
    normaliser = Normaliser(mean, std, channels=1)
    train, files = _pair(folder, "train", normaliser)
    notes: tuple[str, ...] = ()
    if find_idx(folder, "t10k-images-idx3-ubyte"):
        validation, more = _pair(folder, "t10k", normaliser)
        files += more
    else:
        own, held = split.rows(len(train), share)
        validation = ImageArray(train.images, train.labels, held, normaliser)
        train = ImageArray(train.images, train.labels, own, normaliser)
        notes = ("There is no t10k pair: validation is a fixed random share of train.",)
    _check_sides(folder, train, validation)
    classes = int(max(train.labels.max(), validation.labels.max())) + 1
    height, width = train.images.shape[1:]
    return Corpus(
        train,
        validation,
        DataInfo(
            f"IDX images in {folder.name}",
            "images",
            digest_files(files),
            "not stated",
            len(train),
            len(validation),
            classes=classes,
            image_shape=(1, height, width),
            notes=(*notes, *covers(files)),
        ),
    )


def _pair(folder: Path, part: str, normaliser: Normaliser) -> tuple[ImageArray, list[DataFile]]:
    paths = [_need(folder, f"{part}-images-idx3-ubyte"), _need(folder, f"{part}-labels-idx1-ubyte")]
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise DataError(
            "Images and labels do not match.",
            field="data.path",
            found=f"{len(images)} images and {len(labels)} labels for {part} in {folder}",
            expected="one label for each image",
            next_step="Fetch both files again from one place.",
        )
    files = [DataFile(path.name, path, path.stat().st_size) for path in paths]
    return ImageArray(images, labels, np.arange(len(images)), normaliser), files


def _need(folder: Path, stem: str) -> Path:
    path = find_idx(folder, stem)
    if path is None:
        raise DataError(
            "An IDX file is missing.",
            field="data.path",
            found=f"{folder} without {stem}",
            expected=f"{stem} or {stem}.gz",
            next_step="Put it beside the others.",
        )
    return path


def _check_sides(folder: Path, train: ImageArray, validation: ImageArray) -> None:
    if not len(train) or not len(validation) or train.images.shape[1:] != validation.images.shape[1:]:
        raise DataError(
            "The two sides cannot be used together.",
            field="data.path",
            found=f"{len(train)} images of {train.images.shape[1:]} and {len(validation)} of "
            f"{validation.images.shape[1:]} in {folder}",
            expected="at least one image for each side, all of one size",
            next_step="Check that all files belong to one data set.",
        )
