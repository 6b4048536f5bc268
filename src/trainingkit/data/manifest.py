"""What stands in a token folder's manifest.json, the file that is written last.

manifest.json              sizes and CRC of every file, counts, vocabulary, digest of the text
train-00000.bin, ...       tokens, little endian, uint16 or uint32
validation-00000.bin, ...
tokenizer/                 the Hugging Face tokenizer that made them
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from trainingkit.core.errors import DataError
from trainingkit.core.section import Section
from trainingkit.data.files import missing

MANIFEST_NAME = "manifest.json"
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
"""The shards' dtypes with their byte order."""


class FileSum(Section):
    """One file: its name in the folder, size and CRC-32."""

    file: str = Field(pattern=r"^(tokenizer/)?[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    n_bytes: int = Field(ge=0)
    crc32: int = Field(ge=0, lt=1 << 32)


class Side(Section):
    """Training or validation: counts, and shards in order."""

    tokens: int = Field(ge=0)
    text_bytes: int = Field(ge=0, description="bytes of text behind the tokens")
    documents: int = Field(ge=0)
    shards: tuple[FileSum, ...]


class TokenManifest(Section):
    """The whole manifest. It holds no times and no places, so the same build gives the same bytes."""

    format: Literal["trainingkit-tokens"] = "trainingkit-tokens"
    version: Literal[1] = 1
    name: str
    dtype: Literal["uint16", "uint32"]
    vocab_size: int = Field(ge=1)
    separator_id: int = Field(ge=0, description="the token after each document")
    source_sha256: str
    notes: tuple[str, ...] = ()
    tokenizer: tuple[FileSum, ...]
    train: Side
    validation: Side

    @property
    def numpy_dtype(self) -> str:
        """The dtype with its byte order."""
        return DTYPES[self.dtype]

    def all_files(self) -> tuple[FileSum, ...]:
        """Every file of the folder but the manifest itself."""
        return (*self.tokenizer, *self.train.shards, *self.validation.shards)


def read_manifest(folder: Path) -> TokenManifest:
    """Read and check `folder`/manifest.json.

    Raises:
        DataError: no folder, no manifest (the build did not finish), or not one of ours.
    """
    path = folder / MANIFEST_NAME
    if not folder.is_dir():
        raise missing(str(folder), "data.path", "a folder made by `trainingkit data build`")
    if not path.is_file():
        raise _unusable(f"{folder} without {MANIFEST_NAME}")
    try:
        manifest = TokenManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise _unusable(f"{path}: {where}: {first['msg']}") from error
    for name, side in (("train", manifest.train), ("validation", manifest.validation)):
        held = sum(shard.n_bytes for shard in side.shards)
        if held != side.tokens * int(manifest.numpy_dtype[-1]):
            raise _unusable(f"{path}: {name} counts {side.tokens} tokens, its shards {held} bytes")
    return manifest


def _unusable(found: str) -> DataError:
    return DataError(
        "This is not a finished token folder.",
        field="data.path",
        found=found,
        expected=f"a folder with a whole {MANIFEST_NAME}, which `trainingkit data build` writes last",
        next_step="Remove the folder and build it again with `trainingkit data build`.",
    )
