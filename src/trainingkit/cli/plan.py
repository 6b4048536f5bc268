"""`trainingkit plan`: the best layout of a model on a cluster, with its reasons."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from trainingkit.planner import Answer
    from trainingkit.planner.search import Space

PLAN_HELP = """Find the best layout of a model on a cluster, in seconds, without a GPU.

Example: trainingkit plan --model llama3-70b --cluster h100:16x8 --target-tokens 1T --page plan.html"""


def plan(
    *,
    model: str,
    cluster: str,
    seq: int | None = None,
    global_batch: int | None = None,
    precision: str = "bf16",
    target_tokens: str | None = None,
    objective: Literal["time", "cost"] = "time",
    fix: str = "",
    codecs: str = "none",
    every: str = "1",
    top: int = 10,
    explain: bool = False,
    json: bool = False,
    page: Path | None = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
) -> int:
    """Rank all layouts (degrees, micro-batch, schedule, recompute, sharding) by predicted time, with error bars.

    A plan is shown only when the upper end of its memory fits. Memory is that of the fullest rank.

    Examples:
      trainingkit plan --model llama3-70b --cluster cluster.toml --target-tokens 1T --explain
      trainingkit plan --model gpt3-175b --cluster a100-80g:128x8 --global-batch 1536 --page plan.html -o plan.toml
      trainingkit plan --model path/to/config.json --cluster h100:1x8 --json
      trainingkit plan score published_runs.csv

    Parameters
    ----------
    model
        A preset (a wrong name lists them), a Hugging Face config.json, or its folder.
    cluster
        A TOML file (written by hand or by `trainingkit probe`), or GPU:HOSTSxDEVICES such as h100:16x8.
    seq
        Tokens per sample. Default: the model's own, at most 8,192.
    global_batch
        Samples per step. Default: about 4 million tokens, 1 million below 10 billion parameters.
    precision
        bf16, fp8, fp16, tf32 or fp32.
    target_tokens
        Say days (and cost) for so many tokens, for example 300B or 1T.
    objective
        "cost" tries fewer hosts, too, and wants a price in the cluster file.
    fix
        What is already decided, for example tp=8,recompute=full.
    codecs
        Specs for the gradients between replicas, separated by semicolons, such as "none;all|int4(block=64)". They
        change what is learned a little, so they are not tried unless named.
    every
        Exchange every so many steps, separated by commas. Changes what is learned.
    top
        How many plans to show.
    explain
        Why the winner wins, what each plan one choice away would lose, which rule excluded what.
    json
        Print JSON in place of the table.
    page
        Write a page with timeline, memory by stage and cost, one HTML file.
    output
        Write the best plan as TOML. `trainingkit train` runs plain data-parallel layouts only, today.
    """
    from trainingkit.cli.plan_print import print_answer
    from trainingkit.cli.plan_progress import shares
    from trainingkit.planner import plan as ask
    from trainingkit.planner.answering import answer_table

    tokens = _tokens(target_tokens)
    with shares("searching") as show:
        answer = ask(
            model,
            cluster,
            seq=seq,
            global_batch=global_batch,
            precision=precision,
            top=top,
            objective=objective,
            fix=fix,
            space=_space(codecs, every),
            show=show,
        )
    if json:
        sys.stdout.write(json_module.dumps(answer_table(answer, tokens), indent=1) + "\n")
    else:
        print_answer(answer, tokens, explain=explain)
    _write(answer, tokens, page, output, quiet=json)
    return 0


def _space(codecs: str, every: str) -> Space:
    """The space with the exchanges that were named."""
    from trainingkit.core.errors import ConfigError
    from trainingkit.planner.search import Space

    if not all(part.strip().isdecimal() and int(part) > 0 for part in every.split(",")):
        raise ConfigError(
            "This is no list of step counts.",
            field="--every",
            found=repr(every),
            expected="whole numbers, separated by commas",
            next_step="Write for example --every 1,8.",
        )
    specs = tuple(part.strip() for part in codecs.split(";"))
    return Space(codecs=specs, everys=tuple(int(part) for part in every.split(",")))


def _tokens(text: str | None) -> float | None:
    """'1T', '300B', '5e9' as a number."""
    from trainingkit.core.errors import ConfigError

    if text is None:
        return None
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper(), 1.0)
    try:
        value = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(
            "This is not a number of tokens.",
            field="--target-tokens",
            found=repr(text),
            expected="a number with K, M, B or T",
            next_step="Write it as 300B or 1T.",
        )
    return value


def _write(answer: Answer, tokens: float | None, page: Path | None, output: Path | None, *, quiet: bool) -> None:
    from trainingkit.core import toml
    from trainingkit.planner.planfile import plan_table, train_sentence

    said = []
    if output is not None:
        put_text(output, toml.dump(plan_table(answer.best)), "--output")
        said += [f"Plan: {output}", train_sentence(answer.best)]
    if page is not None:
        from trainingkit.report.planpage import render_plan

        put_text(page, render_plan(answer, tokens), "--page")
        said.append(f"Page: {page}")
    if said:
        (sys.stderr if quiet else sys.stdout).write("\n".join(said) + "\n")


def put_text(path: Path, text: str, option: str) -> None:
    """Write a file, or say why not."""
    from trainingkit.core.errors import ConfigError
    from trainingkit.core.files import write_atomic

    try:
        write_atomic(path, text)
    except OSError as error:
        raise ConfigError(
            f"The file cannot be written: {error.strerror}.",
            field=option,
            found=str(path),
            expected="a file name in a folder that can be written",
            next_step="Make the folder, or choose another file.",
        ) from error
