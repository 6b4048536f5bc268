"""`trainingkit data build`: tokenise text once, train on it often."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID


def data_build(
    input_path: str,
    output: Path,
    /,
    *,
    tokenizer: Path | None = None,
    train_bpe: int | None = None,
    shard_bytes: str = "128 MB",
    validation_share: float = 0.05,
    separator: str | None = None,
) -> None:
    """Tokenise text files into a folder that [data] kind = "tokens" reads.

    Text is streamed, so it may be larger than memory. Each file is one document; documents are packed end to end.

    Example: trainingkit data build books/ tokens/ --train-bpe 8192

    Parameters
    ----------
    input_path
        A file, a folder or a quoted glob of UTF-8 text files.
    output
        A new or empty folder.
    tokenizer
        Folder of a Hugging Face fast tokenizer (with tokenizer.json).
    train_bpe
        Instead: train a byte-level BPE with this many tokens on the training side.
    shard_bytes
        Size after which a new shard begins, for example "64 MB".
    validation_share
        Share of the files (from 20 files on; else of the bytes) kept for validation.
    separator
        The token put after each document; by default the tokenizer's end-of-text token.
    """
    from rich.console import Console

    from trainingkit.core.units import format_bytes, format_count, parse_bytes
    from trainingkit.data.tokenize import BuildOptions, build_tokens

    n_bytes = parse_bytes(shard_bytes, field="--shard-bytes")
    options = BuildOptions(tokenizer, train_bpe, n_bytes, validation_share, separator)
    with _progress() as progress:
        made = build_tokens(input_path, output, options, progress)
    text_bytes = made.train.text_bytes + made.validation.text_bytes
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{format_bytes(text_bytes)} of text became {format_count(made.train.tokens)} training and "
        f"{format_count(made.validation.tokens)} validation tokens (vocabulary {made.vocab_size}).",
        markup=False,
    )
    for note in made.notes:
        console.print(f"Note: {note}", markup=False)
    path = shlex.quote(f"data.path={json.dumps(str(output), ensure_ascii=False)}")
    console.print(f"Train on it: trainingkit train --set data.kind=tokens --set {path}", markup=False)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage where stderr is a terminal; silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield show
