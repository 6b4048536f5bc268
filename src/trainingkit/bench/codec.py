"""How fast is a codec, per thread, against copying the same tensor? Elements a second of encode (with residual) and of
decode, divided by those of a copy that took its turn a moment before.

A copy moves 8 bytes a value; encode with residual about 16 (it also writes a line of the new residual after reading
it), decode 4 to 8. Processor time of the thread is measured, so that neighbours on a shared machine count for less.
"""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from trainingkit.codec import Codec

CODECS = ("all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4(block=64)|bits")
GOALS = {"encode_vs_copy": 0.4, "decode_vs_copy": 0.7}
CONFIDENCE = 0.9
RESAMPLES = 2000
WARM_ROUNDS = 2

Turn = Callable[[], object]


def run(size_bytes: int = 64 << 20, rounds: int = 15, *, kernel: str = "auto", seed: int = 0) -> dict[str, Any]:
    """Measure all codecs in interleaved rounds, on one thread.

    Args:
        size_bytes: size of the fp32 tensor.
        rounds: measured turns of each contender.
        kernel: as `Codec` takes it.

    Returns:
        JSON-able: `checks` (name, codec, value, low, high, unit, goal, holds; the bounds are a 90 % bootstrap of the
        median ratio, and a goal holds when the low bound reaches it), `rows` (median seconds, GB/s of fp32),
        `machine`, `versions`.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        turns = _turns(size_bytes // 4, kernel, seed)
        seconds = _interleave(turns, rounds)
    finally:
        torch.set_num_threads(threads)
    checks = [
        _check(f"{verb}_vs_copy", codec, _ratios(seconds[("copy", "")], taken), seed)
        for (verb, codec), taken in seconds.items()
        if verb != "copy"
    ]
    rows = [_row(verb, codec, taken, size_bytes) for (verb, codec), taken in seconds.items()]
    return {"checks": checks, "rows": rows, "machine": _machine(size_bytes, rounds), "versions": _versions()}


def _turns(n: int, kernel: str, seed: int) -> dict[tuple[str, str], Turn]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    x, residual = torch.randn(n, generator=generator), torch.randn(n, generator=generator) * 0.3
    new_residual, out = torch.zeros(n), torch.zeros(n)
    turns: dict[tuple[str, str], Turn] = {("copy", ""): lambda: out.copy_(x)}
    for spec in CODECS:
        codec = Codec(spec, kernel=kernel)
        message = torch.zeros(codec.message_bytes(n), dtype=torch.uint8)
        turns["encode", spec] = lambda c=codec, m=message: c.encode(x, residual, m, new_residual)
        turns["decode", spec] = lambda c=codec, m=message: c.decode(m, out)
    return turns


def _interleave(turns: dict[tuple[str, str], Turn], rounds: int) -> dict[tuple[str, str], list[float]]:
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in turns}
    for number in range(WARM_ROUNDS + rounds):
        for key, turn in turns.items():
            before = time.thread_time()
            turn()
            if number >= WARM_ROUNDS:
                seconds[key].append(time.thread_time() - before)
    return seconds


def _ratios(copy_s: list[float], taken_s: list[float]) -> list[float]:
    return [copy / taken for copy, taken in zip(copy_s, taken_s, strict=True)]


def _check(name: str, codec: str, ratios: list[float], seed: int) -> dict[str, Any]:
    low, high = _bounds(ratios, seed)
    goal = GOALS[name]
    value = statistics.median(ratios)
    check = {"name": name, "codec": codec, "value": value, "low": low, "high": high}
    return check | {"unit": "ratio", "goal": goal, "holds": low >= goal}


def _bounds(samples: list[float], seed: int) -> tuple[float, float]:
    """Bootstrap bounds of the median."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[edge], medians[-1 - edge]


def _row(verb: str, codec: str, taken_s: list[float], size_bytes: int) -> dict[str, Any]:
    median_s = statistics.median(taken_s)
    return {"verb": verb, "codec": codec, "median_s": median_s, "fp32_gb_per_s": size_bytes / median_s / 1e9}


def _machine(size_bytes: int, rounds: int) -> dict[str, Any]:
    import psutil

    facts = {"processor": platform.processor() or platform.machine(), "cores": psutil.cpu_count(logical=False)}
    return facts | {"system": platform.platform(), "threads": 1, "size_bytes": size_bytes, "rounds": rounds}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("trainingkit", "torch", "numpy", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
