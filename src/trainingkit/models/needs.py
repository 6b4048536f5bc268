"""What a model needs of its data, checked with a message before anything is built."""

from __future__ import annotations

from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ConfigError


def need_language(info: DataInfo, kind: str) -> tuple[int, int]:
    """(vocab_size, seq_len) of language data.

    Raises:
        ConfigError: the data are no token sequences.
    """
    if info.task != "language" or info.vocab_size is None or info.seq_len is None:
        raise ConfigError(
            f"The model {kind!r} is a language model, but the data are not token sequences.",
            field="model.kind",
            found=f"data {info.name!r} with task {info.task!r}",
            expected="data of task 'language'",
            next_step="Choose data.kind = 'text', 'tokens' or 'stdlib', or a model of kind 'hf' or 'python'.",
        )
    return info.vocab_size, info.seq_len
