"""kind = "hf": a Hugging Face `datasets` folder; text, token ids, or images with labels, by column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.section import Section
from trainingkit.data.arrowstream import ArrowStream, row_lengths
from trainingkit.data.contract import Corpus
from trainingkit.data.digest import covers, digest_files
from trainingkit.data.hubfolder import Part, arrow_files, column, open_saved, require_column
from trainingkit.data.images import Normaliser, channels_of, image_module, pixels_of
from trainingkit.data.registry import SOURCES
from trainingkit.data.windows import FILE_SEPARATOR, byte_facts, language_corpus, language_facts

Sides = tuple[Part, Part]


@SOURCES.register("hf")
class HfData(Section):
    """Exactly one of text_column, input_ids_column and image_column (with label_column) says how to read the rows."""

    path: str = Field(min_length=1, description="a folder that datasets' save_to_disk wrote")
    text_column: str | None = Field(default=None, description="strings; their bytes are the tokens, NUL after each")
    input_ids_column: str | None = Field(default=None, description="lists of token ids, packed end to end")
    image_column: str | None = Field(default=None, description="images, all of one size")
    label_column: str = Field(default="label", description="integer classes of the images")
    vocab_size: int | None = Field(default=None, ge=1, description="of the ids; default: the highest id + 1")
    seq_len: int = Field(default=256, ge=2, description="tokens in a sample")
    mean: list[float] = Field(default=[0.5], min_length=1, description="of images: one number, or one per channel")
    std: list[float] = Field(default=[0.5], min_length=1, description="of images: one number, or one per channel")
    validation_share: float = Field(default=0.05, gt=0, lt=1, description="where there is no validation split")

    def open(self) -> Corpus:
        """Map the tables and read the chosen column.

        Raises:
            ConfigError: not exactly one column is named.
            DataError: `datasets` is not installed, nothing usable is there, or a column is missing or of another type.
        """
        ways = {"text_column": self._text, "input_ids_column": self._ids, "image_column": self._images}
        named = [name for name in ways if getattr(self, name) is not None]
        if len(named) != 1:
            raise ConfigError(
                "The recipe does not say how to read the rows.",
                field="data",
                found=" and ".join(named) or "no column",
                expected="exactly one of " + ", ".join(ways),
                next_step='Add one, for example text_column = "text".',
            )
        train, validation, notes = open_saved(self.path, self.validation_share)
        files = arrow_files(self.path)
        name = f"data set {Path(self.path).name}"
        return ways[named[0]]((train, validation), name, digest_files(files), (*notes, *covers(files)))

    def _text(self, sides: Sides, name: str, digest: str, notes: tuple[str, ...]) -> Corpus:
        assert self.text_column is not None
        columns = [column(part, self.text_column, "data.text_column", _is_text, "strings") for part in sides]
        streams = _streams(columns, sides, FILE_SEPARATOR)
        facts = byte_facts(name, digest, "not stated", (*notes, *_empty_rows(columns, sides)))
        return language_corpus(streams[0], streams[1], self.seq_len, facts)

    def _ids(self, sides: Sides, name: str, digest: str, notes: tuple[str, ...]) -> Corpus:
        assert self.input_ids_column is not None
        field = "data.input_ids_column"
        columns = [column(part, self.input_ids_column, field, _is_ids, "lists of integers") for part in sides]
        vocab_size = self.vocab_size or max(_highest(each) for each in columns) + 1
        more = (*notes, *_empty_rows(columns, sides), "Bits per byte are unknown: the text behind the ids is not kept.")
        facts = language_facts(name, digest, "not stated", vocab_size=vocab_size, notes=more)
        train, validation = _streams(columns, sides, None)
        return language_corpus(train, validation, self.seq_len, facts)

    def _images(self, sides: Sides, name: str, digest: str, notes: tuple[str, ...]) -> Corpus:
        assert self.image_column is not None
        image_module()
        for part in sides:
            require_column(part, self.image_column, "data.image_column")
        labels = [column(part, self.label_column, "data.label_column", _is_integer, "integers") for part in sides]
        if not all(len(part.rows) for part in sides):
            raise _no_rows(sides)
        shape = _image_shape(sides[0], self.image_column)
        images = [HubImages(part, self.image_column, self.label_column, shape, self._norm(shape)) for part in sides]
        classes = max(_highest(each) for each in labels) + 1
        lengths = (len(images[0]), len(images[1]))
        info = DataInfo(name, "images", digest, "not stated", *lengths, classes=classes, image_shape=shape, notes=notes)
        return Corpus(images[0], images[1], info)

    def _norm(self, shape: tuple[int, int, int]) -> Normaliser:
        return Normaliser(self.mean, self.std, shape[0])


@dataclass(frozen=True, eq=False)
class HubImages:
    """Images of some rows, decoded when asked for; all of one (channels, height, width)."""

    part: Part
    image_column: str
    label_column: str
    shape: tuple[int, int, int]
    normaliser: Normaliser

    def __len__(self) -> int:
        return len(self.part.rows)

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """See Normaliser.sample. Raises DataError for an image of another size."""
        row = self.part.table[int(self.part.rows[index])]
        pixels = pixels_of(row[self.image_column], self.shape[0])
        if pixels.shape[:2] != self.shape[1:]:
            raise DataError(
                "An image has another size than the first.",
                field="data.image_column",
                found=f"{pixels.shape[0]} x {pixels.shape[1]} in row {int(self.part.rows[index])}",
                expected=f"{self.shape[1]} x {self.shape[2]}",
                next_step="Resize the images before save_to_disk.",
            )
        return self.normaliser.sample(pixels, row[self.label_column])


def _streams(columns: list[Any], sides: Sides, separator: int | None) -> tuple[ArrowStream, ArrowStream]:
    train, validation = (ArrowStream(each, part.rows, separator) for each, part in zip(columns, sides, strict=True))
    return train, validation


def _empty_rows(columns: list[Any], sides: Sides) -> tuple[str, ...]:
    count = sum(int((row_lengths(c)[p.rows] == 0).sum()) for c, p in zip(columns, sides, strict=True))
    return (f"{count} rows are empty.",) if count else ()


def _image_shape(part: Part, name: str) -> tuple[int, int, int]:
    first = part.table[int(part.rows[0])][name]
    if not hasattr(first, "convert"):
        raise DataError(
            f"The column {name!r} holds no images.",
            field="data.image_column",
            found=type(first).__name__,
            expected="a column with the feature datasets.Image()",
            next_step="Cast it: dataset.cast_column(name, datasets.Image()), then save it again.",
        )
    return channels_of(first), first.height, first.width


def _highest(values: Any) -> int:
    import pyarrow.compute as pc

    flat = pc.list_flatten(values) if _is_ids(values.type) else values  # pyright: ignore
    return pc.max(flat).as_py() or 0  # pyright: ignore


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "binary", "large_binary")


def _is_ids(kind: Any) -> bool:
    return hasattr(kind, "value_type") and _is_integer(kind.value_type)


def _is_integer(kind: Any) -> bool:
    return str(kind).removeprefix("u").startswith("int")


def _no_rows(sides: Sides) -> DataError:
    return DataError(
        "A side of the data set is empty.",
        field="data.path",
        found=f"{len(sides[0].rows)} rows for train and {len(sides[1].rows)} for validation",
        expected="at least one row for each",
        next_step="Save a data set with more rows.",
    )
