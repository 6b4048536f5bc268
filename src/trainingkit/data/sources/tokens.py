"""kind = "tokens": a folder that `trainingkit data build` made, read through memory maps."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import Field

from trainingkit.core.errors import DataError
from trainingkit.core.files import crc32_of
from trainingkit.core.section import Section
from trainingkit.data.contract import Corpus
from trainingkit.data.files import DataFile
from trainingkit.data.manifest import MANIFEST_NAME, FileSum, Side, TokenManifest, read_manifest
from trainingkit.data.registry import SOURCES
from trainingkit.data.stream import MappedFiles
from trainingkit.data.windows import language_corpus, language_facts

CRC_UP_TO_BYTES = 256 * 10**6


@SOURCES.register("tokens")
class TokensData(Section):
    """Tokenised, packed text. `info.sha256` is the digest of the manifest, which holds the CRC of every file."""

    path: str = Field(min_length=1, description="a folder made by `trainingkit data build`")
    seq_len: int = Field(default=256, ge=2, description="tokens in a sample")
    verify: Literal["auto", "full", "size"] = Field(
        default="auto", description="check CRCs always (full), up to 256 MB (auto) or never (size)"
    )

    def open(self) -> Corpus:
        """Check the files against the manifest and map them on first use.

        Raises:
            DataError: no finished build is there, or a file is missing or damaged.
        """
        folder = Path(self.path).expanduser()
        manifest = read_manifest(folder)
        _check_files(folder, manifest, self.verify)
        facts = language_facts(
            manifest.name,
            hashlib.sha256((folder / MANIFEST_NAME).read_bytes()).hexdigest(),
            "not stated",
            vocab_size=manifest.vocab_size,
            bytes_per_token=manifest.validation.text_bytes / max(manifest.validation.tokens, 1),
            notes=manifest.notes,
        )
        train, validation = (_stream(folder, side, manifest) for side in (manifest.train, manifest.validation))
        return language_corpus(train, validation, self.seq_len, facts)


def _stream(folder: Path, side: Side, manifest: TokenManifest) -> MappedFiles:
    files = [DataFile(shard.file, folder / shard.file, shard.n_bytes) for shard in side.shards]
    return MappedFiles(files, dtype=manifest.numpy_dtype)


def _check_files(folder: Path, manifest: TokenManifest, verify: str) -> None:
    sums = manifest.all_files()
    with_crc = verify == "full" or (verify == "auto" and sum(each.n_bytes for each in sums) <= CRC_UP_TO_BYTES)
    for each in sums:
        _check_file(folder / each.file, each, with_crc)


def _check_file(path: Path, expected: FileSum, with_crc: bool) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found is None:
        raise _damaged(f"{path} is missing", expected)
    if found != expected.n_bytes:
        raise _damaged(f"{path} has {found} bytes", expected)
    if with_crc and (crc := crc32_of(path)) != expected.crc32:
        raise _damaged(f"{path} has CRC-32 {crc:08x}", expected)


def _damaged(found: str, expected: FileSum) -> DataError:
    return DataError(
        "The token folder is damaged.",
        field="data.path",
        found=found,
        expected=f"{expected.n_bytes} bytes with CRC-32 {expected.crc32:08x}",
        next_step="Copy the folder again, or build it again with `trainingkit data build`.",
    )
