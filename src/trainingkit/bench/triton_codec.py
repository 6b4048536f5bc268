"""How much of a GPU's copy bandwidth does the codec reach? Bytes moved a second by encode (with residual) and decode,
divided by those of a copy of the same tensor that took its turn a moment before. They are timed as callers see them:
launch and the wait for the flag are in it, so a small tensor shows mostly those.

Not yet run on a GPU: the project's own machines have none, so its figures are pending.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from trainingkit.bench.result import Result, make_check, make_result
from trainingkit.bench.stats import median_interval
from trainingkit.codec import Codec
from trainingkit.core.errors import ConfigError

CODECS = ("all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4(block=64)|bits")
GOAL = 0.7
WARM_ROUNDS = 3

Turn = tuple[Callable[[], object], int]
"""What is timed, and how many bytes it must read and write."""


def run(size_bytes: int = 256 << 20, rounds: int = 15, *, command: str, seed: int = 0) -> Result:
    """Measure all codecs on the current CUDA device in interleaved rounds.

    Args:
        size_bytes: size of the fp32 tensor; several times the device's cache, or the cache is measured.
        rounds: measured turns of each contender.

    Raises:
        ConfigError: there is no CUDA device.
    """
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            "There is no GPU to measure.",
            field="--device",
            found="no CUDA device that PyTorch can use",
            expected="a CUDA device",
            next_step="Run this on a machine with a GPU and PyTorch for CUDA, or choose --device cpu.",
        )
    turns = _turns(size_bytes // 4, seed)
    rates = _interleave(turns, rounds)
    checks = [
        make_check(f"{name}_of_copy", median_interval(_ratios(rate, rates["copy"]), seed=seed), f">= {GOAL}")
        for name, rate in rates.items()
        if name != "copy"
    ]
    rows = [{"turn": name, "gb_per_s": statistics.median(rate) / 1e9} for name, rate in rates.items()]
    facts = {"device": torch.cuda.get_device_name(), "size_bytes": size_bytes, "rounds": rounds}
    return make_result("codec", command=command, checks=checks, rows=rows, facts=facts)


def _turns(n: int, seed: int) -> dict[str, Turn]:
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)
    x, residual = (torch.randn(n, generator=generator, device="cuda") for _ in range(2))
    new_residual, out = torch.zeros_like(x), torch.zeros_like(x)
    turns: dict[str, Turn] = {"copy": (lambda: out.copy_(x), 8 * n)}
    for spec in CODECS:
        codec = Codec(spec)
        message = torch.zeros(codec.message_bytes(n), dtype=torch.uint8, device="cuda")
        encode = lambda c=codec, m=message: c.encode(x, residual, m, new_residual)  # noqa: E731
        decode = lambda c=codec, m=message: c.decode(m, out)  # noqa: E731
        turns[f"encode {spec}"] = (encode, 12 * n + message.numel())
        turns[f"decode {spec}"] = (decode, 4 * n + message.numel())
    return turns


def _interleave(turns: dict[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Bytes a second of each turn in each round."""
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(WARM_ROUNDS + rounds):
        for name, (turn, n_bytes) in turns.items():
            seconds = _seconds(turn)
            if number >= WARM_ROUNDS:
                rates[name].append(n_bytes / seconds)
    return rates


def _seconds(turn: Callable[[], Any]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    turn()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def _ratios(rate: list[float], copy: list[float]) -> list[float]:
    return [one / other for one, other in zip(rate, copy, strict=True)]
