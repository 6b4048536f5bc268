"""What a model needs to know of the data, and what the page says of it. No tensors here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataInfo:
    """Facts about a corpus.

    Args:
        name: what a person would call it, for example "Python standard library source".
        task: "language" (batches of `input_ids`, `labels`) or "images" (`pixel_values`, `labels`) or "custom".
        sha256: digest over the content, in hex; the same content gives the same digest on every machine.
        licence: SPDX name or a sentence; "not stated" where the user brings the data.
        train_samples, validation_samples: lengths of the two sides.
        vocab_size: number of token ids (language).
        seq_len: tokens per sample (language).
        bytes_per_token: mean bytes of text behind one token (language; 1.0 for byte tokens), for bits per byte.
        classes: number of labels (images).
        image_shape: (channels, height, width) (images).
        notes: anything that was left out or changed on the way, one sentence each. Nothing is lost silently.
    """

    name: str
    task: str
    sha256: str
    licence: str
    train_samples: int
    validation_samples: int
    vocab_size: int | None = None
    seq_len: int | None = None
    bytes_per_token: float | None = None
    classes: int | None = None
    image_shape: tuple[int, int, int] | None = None
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """JSON-able facts, without the empty ones."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, ())}
