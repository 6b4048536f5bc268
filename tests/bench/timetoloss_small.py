"""Curves and turns made by formula, for the tests of the time-to-loss bench."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from trainingkit.bench.cache import keep
from trainingkit.bench.network.spec import Measured
from trainingkit.bench.timetoloss import apart30, proving
from trainingkit.bench.timetoloss.catalogue import everybody
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, path_of, read_curve
from trainingkit.bench.timetoloss.plan import pending, runs_of
from trainingkit.bench.timetoloss.reaching import reach
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.times import GROUPS, groups_on, members_of
from trainingkit.bench.timetoloss.times import path_of as times_path

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


def run_all(
    spec: TimeToLossSpec, names: Sequence[str], make: Callable[[CurveSpec], Curve] = made
) -> tuple[Callable[[CurveSpec], Curve | None], dict[str, Curve]]:
    """Every run that the plan asks for; how to find them, and all by digest."""
    kept: dict[str, Curve] = {}
    find = finding(kept)
    for _ in range(200):
        wanted = [one for name, seed in runs_of(spec, names) if (one := pending(spec, name, seed, find)) is not None]
        if not wanted:
            return find, kept
        kept[wanted[0].digest()] = make(wanted[0])
    raise AssertionError("the plan has no end")


def shifted(curve: Curve, by: float) -> Curve:
    """The same curve, with all losses after the first one moved."""
    losses = [[step, loss + (by if step else 0.0)] for step, loss in curve.losses]
    return curve.model_copy(update={"losses": losses})


def fill(cache: Path, spec: TimeToLossSpec, links: Sequence[str]) -> None:
    """Keep curves, times, proofs and whole runs of everybody."""
    names = [entry.name for entry in everybody(spec.winner)]
    find, kept = run_all(spec, names)
    for curve in kept.values():
        keep(path_of(cache, curve.spec), curve.model_dump_json())
    for link, group in itertools.product(links, GROUPS):
        turns = dict.fromkeys(members_of(group, spec.winner), 3.0) | {"squeezed": 2.0, "none": 1.5, "none again": 1.5}
        turns |= {"plain": 24.0} if "plain" in turns else {}
        if group in groups_on(link, tuple(GROUPS)):
            keep(times_path(cache, spec, link, group), measured(turns).to_json())
    while todo := apart30.pending_gaps(spec, lambda one: read_curve(cache, one)):
        keep(path_of(cache, todo[0]), made(todo[0]).model_dump_json())
    for name in names:
        seen = reach(spec, name, 0, find)
        assert seen is not None
        for steps in (seen.curve.spec.proof_steps, seen.curve.spec.steps):
            path = proving.proof_path(cache, spec, seen.curve.spec, steps)
            keep(path, seen.curve.model_copy(update={"seconds": 600.0}).model_dump_json())
