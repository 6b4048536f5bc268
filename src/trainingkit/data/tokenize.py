"""`trainingkit data build`: text files to a folder of packed tokens, in bounded memory.

Pieces that end after a line are tokenised on their own, so a token never spans the end of a piece; for tokenizers
that merge across line ends, the ids near such a border (one in about 256 KiB) can differ from those of the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.files import crc32_of, fsync_folder, write_atomic
from trainingkit.data.digest import covers, digest_files
from trainingkit.data.documents import Piece, Span, pieces, two_sides
from trainingkit.data.files import DataFile, find_files
from trainingkit.data.manifest import DTYPES, MANIFEST_NAME, FileSum, Side, TokenManifest
from trainingkit.data.shards import ShardWriter
from trainingkit.data.tokenizer import id_bound, load_tokenizer, save_tokenizer, separator_of, train_bpe

PIECES_AT_ONCE = 8
UINT16_IDS = 1 << 16

Progress = Callable[[str, int, int], None]
"""Called with (stage, bytes of text done, bytes of text in all)."""


@dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Args:
        tokenizer: folder of a Hugging Face fast tokenizer; or None.
        train_bpe: vocabulary of a byte-level BPE to train on the training side; or None.
        shard_bytes: size after which a new shard begins.
        validation_share: of files (20 or more), else of bytes.
        separator: the token after each document; None: the tokenizer's end-of-text token.

    Raises:
        ConfigError: not exactly one of the two tokenizers is asked for, or a number is out of range.
    """

    tokenizer: Path | None = None
    train_bpe: int | None = None
    shard_bytes: int = 128 * 10**6
    validation_share: float = 0.05
    separator: str | None = None

    def __post_init__(self) -> None:
        if (self.tokenizer is None) == (self.train_bpe is None):
            raise ConfigError(
                "Say where the tokenizer comes from.",
                field="--tokenizer",
                found="neither" if self.tokenizer is None else "both",
                expected="either --tokenizer FOLDER or --train-bpe VOCAB",
                next_step="Try --train-bpe 8192.",
            )
        if not 0 < self.validation_share < 1:
            raise _out_of_range("--validation-share", self.validation_share, "a number between 0 and 1")
        if self.shard_bytes < 4:
            raise _out_of_range("--shard-bytes", self.shard_bytes, "at least 4 bytes")


def build_tokens(source: str, output: Path, options: BuildOptions, progress: Progress) -> TokenManifest:
    """Tokenise all text at `source` (file, folder or glob) into the new folder `output`.

    Documents (one per file) are packed end to end with a separator after each. Training and validation have their
    own shards. The manifest is written last: a folder without it is an unfinished build.

    Raises:
        ConfigError: `output` is not empty, or the tokenizer has no separator.
        DataError: no text, an unreadable file, no tokenizer, too little text for two sides, or no room for the result.
    """
    files, notes = find_files(source, field="INPUT")
    train, validation = two_sides(files, options.validation_share)
    _check_sides(source, train, validation)
    _claim(output)
    try:
        return _build(source, files, notes, (train, validation), output, options, progress)
    except OSError as error:
        raise DataError(
            f"The token folder cannot be written: {error.strerror or error}.",
            field="OUTPUT",
            found=str(error.filename or output),
            expected="room and permission for the tokens",
            next_step="Mend it, remove the half-built folder, and build again.",
        ) from error


def _build(
    source: str,
    files: Sequence[DataFile],
    notes: tuple[str, ...],
    spans: tuple[list[Span], list[Span]],
    output: Path,
    options: BuildOptions,
    progress: Progress,
) -> TokenManifest:
    train, validation = spans
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else _trained(train, options, progress)
    separator, separator_id = separator_of(tokenizer, options.tokenizer, options.separator)
    vocab_size = id_bound(tokenizer)
    dtype = "uint16" if vocab_size <= UINT16_IDS else "uint32"
    saved = save_tokenizer(tokenizer, options.tokenizer, separator, output / "tokenizer")
    encode = _Encoder(tokenizer, separator_id, progress, _bytes_of(train) + _bytes_of(validation))
    sides = {
        name: _write_side(ShardWriter(output, name, DTYPES[dtype], options.shard_bytes), side, encode)
        for name, side in (("train", train), ("validation", validation))
    }
    strays = (f"{encode.replaced} bytes that are no UTF-8 became U+FFFD.",) if encode.replaced else ()
    manifest = TokenManifest(
        name=f"text in {Path(source).name or source}",
        dtype=dtype,
        vocab_size=vocab_size,
        separator_id=separator_id,
        source_sha256=digest_files(files),
        notes=(*notes, *covers(files), *strays),
        tokenizer=tuple(_sum_of(path, output) for path in saved),
        train=sides["train"],
        validation=sides["validation"],
    )
    fsync_folder(output)
    write_atomic(output / MANIFEST_NAME, manifest.model_dump_json(indent=1))
    return manifest


class _Encoder:
    """Pieces to ids, a few at a time on all cores; counts what it has done."""

    def __init__(self, tokenizer: Any, separator_id: int, progress: Progress, total_bytes: int) -> None:
        self._tokenizer = tokenizer
        self._separator_id = separator_id
        self._progress = progress
        self._total_bytes = total_bytes
        self.done_bytes = 0
        self.replaced = 0

    def __call__(self, group: Sequence[Piece]) -> np.ndarray:
        """[n] int64 ids of the pieces in order, the separator after each document."""
        encodings = self._tokenizer.encode_batch_fast([piece.text for piece in group], add_special_tokens=False)
        parts: list[list[int]] = []
        for piece, encoding in zip(group, encodings, strict=True):
            parts += [encoding.ids, [self._separator_id]] if piece.last else [encoding.ids]
            self.done_bytes += piece.n_bytes
            self.replaced += piece.replaced
        self._progress("tokenise", self.done_bytes, self._total_bytes)
        return np.concatenate([np.array(part, dtype=np.int64) for part in parts])


def _write_side(writer: ShardWriter, spans: Sequence[Span], encode: _Encoder) -> Side:
    with writer:
        for group in _groups(pieces(spans)):
            writer.write(encode(group))
        shards = writer.close()
    return Side(tokens=writer.tokens, text_bytes=_bytes_of(spans), documents=len(spans), shards=shards)


def _groups(every: Iterator[Piece]) -> Iterator[list[Piece]]:
    while group := list(islice(every, PIECES_AT_ONCE)):
        yield group


def _trained(spans: Sequence[Span], options: BuildOptions, progress: Progress) -> Any:
    assert options.train_bpe is not None
    total = _bytes_of(spans)

    def texts() -> Iterator[str]:
        done = 0
        for piece in pieces(spans):
            done += piece.n_bytes
            progress("train tokenizer", done, total)
            yield piece.text

    return train_bpe(texts(), options.train_bpe)


def _bytes_of(spans: Sequence[Span]) -> int:
    return sum(span.stop - span.start for span in spans)


def _sum_of(path: Path, output: Path) -> FileSum:
    name = path.relative_to(output).as_posix()
    return FileSum(file=name, n_bytes=path.stat().st_size, crc32=crc32_of(path))


def _claim(output: Path) -> None:
    """Make `output`, or accept an empty folder."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        taken = next(output.iterdir(), None)
    except OSError as error:
        raise ConfigError(
            f"The output folder cannot be made: {error.strerror}.",
            field="OUTPUT",
            found=str(output),
            expected="a new or empty folder in a place that can be written",
            next_step="Choose another folder.",
        ) from error
    if taken is not None:
        raise ConfigError(
            "The output folder is not empty; nothing is overwritten.",
            field="OUTPUT",
            found=f"{output} with {taken.name}",
            expected="a new or empty folder",
            next_step="Choose another folder, or remove this one.",
        )


def _check_sides(source: str, train: list[Span], validation: list[Span]) -> None:
    if not train or not validation:
        raise DataError(
            "There is too little text for two sides.",
            field="INPUT",
            found=f"{source}: {_bytes_of(train)} bytes for train and {_bytes_of(validation)} for validation",
            expected="text for training and for validation",
            next_step="Give more text, or change --validation-share.",
        )


def _out_of_range(field: str, found: float, expected: str) -> ConfigError:
    return ConfigError(
        "This number is out of range.", field=field, found=found, expected=expected, next_step=f"Change {field}."
    )
