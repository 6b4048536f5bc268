"""Language samples: a row of tokens cut into windows of equal length, side by side."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import DataError
from trainingkit.data.contract import Corpus
from trainingkit.data.stream import TokenStream

BYTE_VOCAB = 256
FILE_SEPARATOR = 0
"""The byte put after each file where bytes are tokens: NUL, which text does not hold."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of `seq_len` tokens without overlap; a rest shorter than a window is not reached."""

    stream: TokenStream
    seq_len: int

    def __len__(self) -> int:
        return len(self.stream) // self.seq_len

    def sample(self, index: int) -> dict[str, np.ndarray]:
        """`input_ids` and an equal `labels`: [seq_len] int64 each; the model shifts by one.

        Raises:
            IndexError: there is no such window.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        ids = self.stream.read(index * self.seq_len, (index + 1) * self.seq_len)
        return {"input_ids": ids, "labels": ids.copy()}


def language_corpus(train: TokenStream, validation: TokenStream, seq_len: int, facts: DataInfo) -> Corpus:
    """Cut both sides into windows and complete `facts` with the lengths and what was left out.

    Raises:
        DataError: a side has fewer tokens than one window.
    """
    notes = list(facts.notes)
    for name, stream in (("train", train), ("validation", validation)):
        if len(stream) < seq_len:
            raise _too_short(name, len(stream), seq_len)
        if rest := len(stream) % seq_len:
            notes.append(f"The last {rest} tokens of {name} do not fill a window and are left out.")
    sides = Windows(train, seq_len), Windows(validation, seq_len)
    counts = {"train_samples": len(sides[0]), "validation_samples": len(sides[1])}
    info = dataclasses.replace(facts, task="language", seq_len=seq_len, notes=tuple(notes), **counts)
    return Corpus(*sides, info)


def language_facts(name: str, sha256: str, licence: str, **more: object) -> DataInfo:
    """Facts of a language corpus before its lengths are known."""
    base = DataInfo(name, "language", sha256, licence, train_samples=0, validation_samples=0)
    return dataclasses.replace(base, **more)  # pyright: ignore[reportArgumentType]


def byte_facts(name: str, sha256: str, licence: str, notes: tuple[str, ...]) -> DataInfo:
    """Facts of a corpus whose tokens are its bytes."""
    return language_facts(name, sha256, licence, vocab_size=BYTE_VOCAB, bytes_per_token=1.0, notes=notes)


def _too_short(side: str, n_tokens: int, seq_len: int) -> DataError:
    other = "raise data.validation_share" if side == "validation" else "lower data.validation_share"
    return DataError(
        f"The {side} side is shorter than one window.",
        field="data.seq_len",
        found=f"{n_tokens} tokens for {side}",
        expected=f"at least {seq_len} tokens (data.seq_len)",
        next_step=f"Give more text, lower data.seq_len, or {other}.",
    )
