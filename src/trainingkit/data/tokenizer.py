"""Getting a tokenizer: from a Hugging Face folder, or a byte-level BPE trained on the text itself.

BPE: R. Sennrich, B. Haddow, A. Birch, "Neural machine translation of rare words with subword units", ACL 2016; on
bytes as in A. Radford et al., "Language models are unsupervised multitask learners", 2019.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainingkit.core.errors import ConfigError, DataError
from trainingkit.core.files import write_atomic
from trainingkit.core.nearest import nearest

SEPARATOR = "<|endoftext|>"
SMALLEST_BPE = 257
KNOWN_SEPARATORS = (SEPARATOR, "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
KEPT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def load_tokenizer(folder: Path) -> Any:
    """A `tokenizers.Tokenizer` from `folder`/tokenizer.json, without truncation and padding.

    Raises:
        DataError: there is no such file, or it is no tokenizer.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:
        raise DataError(
            "The tokenizer cannot be loaded.",
            field="--tokenizer",
            found=f"{path}: {error}",
            expected="a folder with the tokenizer.json of a Hugging Face fast tokenizer",
            next_step="Save one with AutoTokenizer.from_pretrained(...).save_pretrained(folder), or use --train-bpe.",
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def train_bpe(texts: Iterator[str], vocab_size: int) -> Any:
    """A byte-level BPE `tokenizers.Tokenizer`: any text can be encoded and decoded without loss.

    Args:
        texts: training text in pieces; only the counts of distinct words are kept in memory.
        vocab_size: at least 257: the bytes and the separator.

    Raises:
        ConfigError: the vocabulary is too small.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocab_size < SMALLEST_BPE:
        raise ConfigError(
            "The vocabulary is too small.",
            field="--train-bpe",
            found=vocab_size,
            expected=f"at least {SMALLEST_BPE}: 256 bytes and the separator",
            next_step="Try --train-bpe 8192.",
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def separator_of(tokenizer: Any, folder: Path | None, wanted: str | None) -> tuple[str, int]:
    """(text, id) of the token put between documents: `wanted`, else the folder's eos_token, else a usual name.

    Raises:
        ConfigError: the tokenizer has no such token, or none is known.
    """
    names = [wanted] if wanted is not None else [*_eos_of(folder), *KNOWN_SEPARATORS]
    for name in names:
        if (number := tokenizer.token_to_id(name)) is not None:
            return name, number
    close = nearest(wanted, tokenizer.get_vocab()) if wanted is not None else None
    raise ConfigError(
        "The tokenizer has no token to put between documents.",
        field="--separator",
        found=repr(wanted) if wanted is not None else f"none of {', '.join(names)}",
        expected="a token of the tokenizer's vocabulary",
        next_step=f"Did you mean {close!r}?" if close else "Name one with --separator.",
    )


def id_bound(tokenizer: Any) -> int:
    """One more than the highest id the tokenizer can give."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def save_tokenizer(tokenizer: Any, origin: Path | None, separator: str, folder: Path) -> list[Path]:
    """Write the tokenizer to a new `folder` so that AutoTokenizer loads it; the files, in order of their names.

    Args:
        origin: the folder it was loaded from, whose files are copied as they are; None for a trained one.
    """
    folder.mkdir()
    if origin is None:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": separator, "bos_token": separator}
        write_atomic(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
        write_atomic(folder / "tokenizer_config.json", json.dumps(config, indent=1))
    else:
        for name in KEPT_FILES:
            if (origin / name).is_file():
                write_atomic(folder / name, (origin / name).read_bytes())
    return sorted(folder.iterdir())


def _eos_of(folder: Path | None) -> list[str]:
    """The eos_token that a tokenizer folder states, if any."""
    for name in KEPT_FILES[1:]:
        path = folder / name if folder else None
        if path is None or not path.is_file():
            continue
        try:
            token = json.loads(path.read_text(encoding="utf-8")).get("eos_token")
        except (ValueError, AttributeError):
            continue
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            return [text]
    return []
