"""Curves and turns made by formula, for the tests of the time-to-loss bench."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from trainingkit.bench.network.spec import Measured
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec

HALVING = {"adamw": 40.0, "muon": 16.0}
"""Steps in which what is above the least loss halves."""


def loss_after(spec: CurveSpec, steps: int) -> float:
    """Falls with the steps; lowest at the rates 3e-3 and 2e-2; a seed moves it a little."""
    kind, best = ("muon", 2e-2) if "muon" in spec.name else ("adamw", 3e-3)
    return 1.0 + 4.0 * 0.5 ** (steps / HALVING[kind]) + 0.1 * abs(math.log2(spec.rate / best)) + 0.001 * spec.seed


def made(spec: CurveSpec) -> Curve:
    """The curve of that formula."""
    steps = [*range(0, spec.steps, spec.eval_every), spec.steps]
    losses = [[float(at), loss_after(spec, at)] for at in steps]
    return Curve(spec=spec, losses=losses, proof="p", end="e", sent_bytes=1e6, seconds=1.0, torch=torch.__version__)


def finding(kept: dict[str, Curve]) -> Callable[[CurveSpec], Curve | None]:
    """Look a curve up in memory."""
    return lambda spec: kept.get(spec.digest())


def measured(step_s: dict[str, float], rounds: int = 5) -> Measured:
    """Turns in which every contender's ratio to all others is the same in each round."""
    seconds = {name: {number: s * (1 + 0.1 * number) for number in range(rounds)} for name, s in step_s.items()}
    sent = {name: [1e6 * s] * rounds for name, s in step_s.items()}
    return Measured(labels={n: n for n in step_s}, seconds=seconds, wire_bytes=sent, said_bytes=sent, rounds=rounds)
