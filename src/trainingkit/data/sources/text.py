"""kind = "text": files of text (or of any bytes) by path, larger than memory if need be; bytes are the tokens."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trainingkit.core.section import Section
from trainingkit.data import split
from trainingkit.data.contract import Corpus
from trainingkit.data.digest import covers, digest_files
from trainingkit.data.files import DataFile, find_files
from trainingkit.data.registry import SOURCES
from trainingkit.data.stream import MappedFiles, Stretch, TokenStream
from trainingkit.data.windows import FILE_SEPARATOR, byte_facts, language_corpus


@SOURCES.register("text")
class TextData(Section):
    """Files are mapped, never loaded whole, and laid end to end with a NUL after each.

    From 20 files on the corpus is split by file, below that the tail of its bytes is validation. The digest is
    `trainingkit.data.digest.digest_files`: whole content up to 256 MB, evenly spread samples beyond.
    """

    path: str = Field(min_length=1, description="a file, a folder or a glob of text files")
    seq_len: int = Field(default=256, ge=2, description="bytes in a sample")
    validation_share: float = Field(default=0.05, gt=0, lt=1, description="share kept for validation")

    def open(self) -> Corpus:
        """Find the files and map them on first use.

        Raises:
            DataError: nothing there, a file that cannot be read, or too little text for one sample a side.
        """
        files, notes = find_files(self.path)
        train, validation = _sides(files, self.validation_share)
        name = f"text in {Path(self.path).name or self.path}"
        facts = byte_facts(name, digest_files(files), "not stated", (*notes, *covers(files)))
        return language_corpus(train, validation, self.seq_len, facts)


def _sides(files: list[DataFile], share: float) -> tuple[TokenStream, TokenStream]:
    if len(files) >= split.FILES_FOR_SPLIT:
        is_validation = split.by_name([file.name for file in files], share)
        pairs = list(zip(files, is_validation, strict=True))
        train = MappedFiles([file for file, held in pairs if not held], separator=FILE_SEPARATOR)
        return train, MappedFiles([file for file, held in pairs if held], separator=FILE_SEPARATOR)
    stream = MappedFiles(files, separator=FILE_SEPARATOR)
    border = len(stream) - round(len(stream) * share)
    return Stretch(stream, 0, border), Stretch(stream, border, len(stream))
