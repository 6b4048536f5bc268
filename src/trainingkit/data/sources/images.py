"""kind = "images": IDX files (MNIST, Fashion-MNIST) in one folder, or one folder of image files per class."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trainingkit.core.errors import DataError
from trainingkit.core.section import Section
from trainingkit.data.contract import Corpus
from trainingkit.data.files import missing
from trainingkit.data.idx import find_idx
from trainingkit.data.idxset import open_idx
from trainingkit.data.imagefolder import open_folders
from trainingkit.data.registry import SOURCES

EXPECTED = "train-images-idx3-ubyte[.gz] and its labels, or one folder of images per class"


@SOURCES.register("images")
class ImagesData(Section):
    """`pixel_values` [C, H, W] float32 as (pixel / 255 - mean) / std, `labels` [] int64."""

    path: str = Field(min_length=1, description="a folder with IDX files, or with one folder per class")
    mean: list[float] = Field(default=[0.5], min_length=1, description="one number, or one per channel")
    std: list[float] = Field(default=[0.5], min_length=1, description="one number, or one per channel")
    channels: Literal[1, 3] | None = Field(default=None, description="grey or colour; default: as the first image")
    image_size: int | None = Field(default=None, ge=1, description="resize image files to this height and width")
    validation_share: float = Field(default=0.05, gt=0, lt=1, description="where the folder has no validation part")

    def open(self) -> Corpus:
        """Read IDX files, or list the image files (each is decoded when it is asked for).

        Raises:
            DataError: nothing there, neither layout, or damaged files.
        """
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise missing(self.path, "data.path", EXPECTED)
        if find_idx(folder, "train-images-idx3-ubyte"):
            self._refuse_for_idx()
            return open_idx(folder, self.mean, self.std, self.validation_share)
        size, share = self.image_size, self.validation_share
        return open_folders(folder, self.mean, self.std, channels=self.channels, image_size=size, share=share)

    def _refuse_for_idx(self) -> None:
        for name, value in (("channels", self.channels), ("image_size", self.image_size)):
            if value is not None:
                raise DataError(
                    "IDX images are used as they are.",
                    field=f"data.{name}",
                    found=value,
                    expected="no such setting for IDX files",
                    next_step="Remove it.",
                )
