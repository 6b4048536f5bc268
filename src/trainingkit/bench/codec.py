"""How fast is a codec, per thread, against copying the same tensor? Elements a second of encode (with residual) and of
decode, divided by those of a copy that took its turn a moment before.

A copy moves 8 bytes a value; encode with residual about 16 (it also writes a line of the new residual after reading
it), decode 4 to 8. Processor time of the thread is measured, so that neighbours on a shared machine count for less.
Beside the speed: is every byte of a message written, and does the sparsest codec keep its promised size?
"""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from trainingkit.bench.result import judge
from trainingkit.bench.stats import Interval
from trainingkit.codec import Codec, message_bytes, parse
from trainingkit.codec.packings import PACKINGS
from trainingkit.codec.quantisers import QUANTISERS

GOALS = {"encode_vs_copy": ">= 0.4", "decode_vs_copy": ">= 0.7", "bytes_written": ">= 1.0", "bits_per_value": "<= 0.16"}
SPARSEST = "topk(density=0.015625, chunk=4096)|int2(block=64)|elias_fano"
"""64 of 4096 values in 2 bits each: the smallest published payload of this kind is 0.219 bits a value."""
CONFIDENCE = 0.9
RESAMPLES = 2000
WARM_ROUNDS = 2
CHECKED_VALUES = 3 * 4096 + 1000

Turn = Callable[[], object]


def codecs() -> list[str]:
    """Every quantiser with `all`; every packing with `topk` in 4 and 2 bits; and the sparsest."""
    dense = [f"all|{name}" for name in QUANTISERS.names()] + ["all|fp8(format=e5m2)"]
    sparse = [f"topk(0.05)|{quantiser}|{name}" for quantiser in ("int4", "int2") for name in PACKINGS.names()]
    return [str(parse(spec)) for spec in [*dense, *sparse, SPARSEST]]


def run(size_bytes: int = 64 << 20, rounds: int = 15, *, kernel: str = "auto", seed: int = 0) -> dict[str, Any]:
    """Measure all codecs in interleaved rounds, on one thread.

    Args:
        size_bytes: size of the fp32 tensor.
        rounds: measured turns of each contender.
        kernel: as `Codec` takes it.

    Returns:
        JSON-able: `checks` (name, codec, value, low, high, unit, goal, holds; the bounds of a ratio are a 90 %
        bootstrap of its median, and a goal holds when the bound on its wrong side does), `rows` (median seconds, GB/s
        of fp32, bits a value), `machine`, `versions`.
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
    checks += [_written(spec, kernel, seed) for spec in codecs()] + [_bits(SPARSEST, size_bytes // 4)]
    rows = [_row(verb, codec, taken, size_bytes) for (verb, codec), taken in seconds.items()]
    return {"checks": checks, "rows": rows, "machine": _machine(size_bytes, rounds), "versions": _versions()}


def _turns(n: int, kernel: str, seed: int) -> dict[tuple[str, str], Turn]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    x, residual = torch.randn(n, generator=generator), torch.randn(n, generator=generator) * 0.3
    new_residual, out = torch.zeros(n), torch.zeros(n)
    turns: dict[tuple[str, str], Turn] = {("copy", ""): lambda: out.copy_(x)}
    for spec in codecs():
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
    return _claim(name, codec, Interval(statistics.median(ratios), low, high), "ratio")


def _claim(name: str, codec: str, found: Interval, unit: str) -> dict[str, Any]:
    check = {"name": name, "codec": codec, "value": found.value, "low": found.low, "high": found.high}
    return check | {"unit": unit, "goal": GOALS[name], "holds": judge(GOALS[name], found.low, found.high)}


def _written(spec: str, kernel: str, seed: int) -> dict[str, Any]:
    """Share of a message's bytes that encode writes: the same bytes, whatever was there before."""
    import torch

    x = torch.randn(CHECKED_VALUES, generator=torch.Generator().manual_seed(seed))
    codec = Codec(spec, kernel=kernel)
    messages = torch.zeros(2, codec.message_bytes(x.numel()), dtype=torch.uint8)
    messages[1] = 0xFF
    for message in messages:
        codec.encode(x, None, message, None)
    share = (messages[0] == messages[1]).double().mean().item()
    return _claim("bytes_written", spec, Interval(share, share, share), "ratio")


def _bits(spec: str, n: int) -> dict[str, Any]:
    bits = 8 * message_bytes(spec, n) / n
    return _claim("bits_per_value", spec, Interval(bits, bits, bits), "bits")


def _bounds(samples: list[float], seed: int) -> tuple[float, float]:
    """Bootstrap bounds of the median."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[edge], medians[-1 - edge]


def _row(verb: str, codec: str, taken_s: list[float], size_bytes: int) -> dict[str, Any]:
    median_s = statistics.median(taken_s)
    bits = 8 * message_bytes(codec, size_bytes // 4) / (size_bytes // 4) if codec else 32.0
    found = {"verb": verb, "codec": codec, "median_s": median_s, "fp32_gb_per_s": size_bytes / median_s / 1e9}
    return found | {"bits_per_value": bits}


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
