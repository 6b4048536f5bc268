"""One folder of image files per class, decoded when asked for."""

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
from trainingkit.data.files import DataFile, find_files
from trainingkit.data.images import Normaliser, channels_of, image_module, pixels_of

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
VALIDATION_NAMES = ("validation", "valid", "val", "test")


@dataclass(frozen=True)
class ImageFiles:
    """Image files with their class. All come out as (channels, height, width) = `shape`."""

    files: Sequence[tuple[DataFile, int]]
    shape: tuple[int, int, int]
    resize: bool
    normaliser: Normaliser

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """Decode one file; see Normaliser.sample.

        Raises:
            DataError: the file is damaged, or of another size where none was asked for.
        """
        file, label = self.files[index]
        return self.normaliser.sample(_decode(file, self.shape, self.resize), label)


def open_folders(
    folder: Path,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    channels: int | None,
    image_size: int | None,
    share: float,
) -> Corpus:
    """`folder`/train/CLASS/* with `folder`/validation/CLASS/* (or valid, val, test), or just `folder`/CLASS/*.

    Raises:
        DataError: no classes, no images, classes of validation that train does not have, or pillow is missing.
    """
    image_module()
    files, notes = find_files(str(folder))
    pictures = [file for file in files if file.path.suffix.lower() in SUFFIXES and "/" in file.name]
    if others := len(files) - len(pictures):
        notes += (f"{others} files that are no images in a class folder were left out.",)
    train, validation = _two_sides(folder, pictures, share)
    used = sorted(train + validation, key=lambda file: file.name)
    if unread := len(pictures) - len(used):
        notes += (f"{unread} images in neither the train nor the validation folder were left out.",)
    classes = sorted({_class_of(file) for file in train})
    _check_sides(folder, train, validation, classes)
    shape = _shape_of(train[0], channels, image_size)
    normaliser = Normaliser(mean, std, shape[0])
    sides = [
        ImageFiles([(file, classes.index(_class_of(file))) for file in side], shape, image_size is not None, normaliser)
        for side in (train, validation)
    ]
    info = DataInfo(
        f"images in {folder.name}",
        "images",
        digest_files(used),
        "not stated",
        len(train),
        len(validation),
        classes=len(classes),
        image_shape=shape,
        notes=(*notes, *covers(used)),
    )
    return Corpus(sides[0], sides[1], info)


def _two_sides(folder: Path, pictures: list[DataFile], share: float) -> tuple[list[DataFile], list[DataFile]]:
    held = next((name for name in VALIDATION_NAMES if (folder / name).is_dir()), None)
    if (folder / "train").is_dir() and held:
        sides = [[file for file in pictures if file.name.startswith(f"{part}/")] for part in ("train", held)]
        return sides[0], sides[1]
    is_validation = split.by_name([file.name for file in pictures], share)
    pairs = list(zip(pictures, is_validation, strict=True))
    return [file for file, own in pairs if not own], [file for file, own in pairs if own]


def _class_of(file: DataFile) -> str:
    return file.path.parent.name


def _check_sides(folder: Path, train: list[DataFile], validation: list[DataFile], classes: list[str]) -> None:
    unknown = sorted({_class_of(file) for file in validation} - set(classes))
    if train and validation and not unknown:
        return
    found = f"classes {unknown} only in validation" if unknown else f"{len(train)} and {len(validation)} images"
    raise DataError(
        "The images cannot be split in two sides of the same classes.",
        field="data.path",
        found=f"{found} in {folder}",
        expected="folders named after classes, with images for training and for validation",
        next_step="Use train/CLASS/* and validation/CLASS/*, or more images per class.",
    )


def _shape_of(file: DataFile, channels: int | None, image_size: int | None) -> tuple[int, int, int]:
    try:
        with image_module().open(file.path) as picture:
            own_channels = channels_of(picture)
            width, height = picture.size
    except (OSError, SyntaxError) as error:
        raise _broken(file, f"{type(error).__name__}: {error}", "an image that pillow can read") from error
    return channels or own_channels, image_size or height, image_size or width


def _decode(file: DataFile, shape: tuple[int, int, int], resize: bool) -> np.ndarray:
    channels, height, width = shape
    try:
        with image_module().open(file.path) as picture:
            pixels = pixels_of(picture, channels, size=(height, width) if resize else None)
    except (OSError, SyntaxError, ValueError) as error:
        raise _broken(file, f"{type(error).__name__}: {error}", "an image that pillow can read") from error
    if pixels.shape[:2] != (height, width):
        found = f"{pixels.shape[0]} x {pixels.shape[1]} pixels"
        raise _broken(file, found, f"{height} x {width} pixels, as the first image; or set data.image_size")
    return pixels


def _broken(file: DataFile, found: str, expected: str) -> DataError:
    return DataError(
        "An image file cannot be used.",
        field="data.path",
        found=f"{file.path}: {found}",
        expected=expected,
        next_step="Repair it or take it out of the folder.",
    )
