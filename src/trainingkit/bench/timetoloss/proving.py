"""Runs in a lab that back what is composed: the same bits as on open links, and minutes by the clock.

A curve was trained on open links, a step was timed on shaped ones. That both are of one training shows here: the first
steps on a shaped link give the same parameters, bit for bit; and a whole run on it takes about the composed minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from trainingkit.bench.network.run import Glance
from trainingkit.bench.timetoloss.catalogue import BASELINE
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, keep
from trainingkit.bench.timetoloss.plan import Find
from trainingkit.bench.timetoloss.reaching import reach
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.training import Watch, train_in_lab
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import check
from trainingkit.netlab import Lab, LabSpec

CONFIRMED_LINK = "100mbit"
Show = Callable[[Glance], None]


def proof_path(cache: Path, link: str, spec: CurveSpec, steps: int) -> Path:
    """Where a run on a shaped link is kept."""
    return cache / "shaped" / f"{link}-{steps}-{spec.digest()[:20]}.json"


def read_proof(cache: Path, link: str, spec: CurveSpec, steps: int) -> Curve | None:
    """The kept run, or None."""
    try:
        return check(Curve, json.loads(proof_path(cache, link, spec, steps).read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError):
        return None


def same_bits(spec: TimeToLossSpec, names: Sequence[str], cache: Path, find: Find) -> dict[str, bool]:
    """Of each contender with a curve and a kept run on the shaped link: whether their parameters are the same bits."""
    found = {}
    for name, curve in _known(spec, names, find):
        shaped = read_proof(cache, CONFIRMED_LINK, curve.spec, curve.spec.proof_steps)
        if shaped is not None:
            found[name] = shaped.proof == curve.proof
    return found


def confirmed(spec: TimeToLossSpec, cache: Path, find: Find) -> dict[str, Curve]:
    """The kept whole runs on the shaped link, of the baseline and the judged contender."""
    found = {}
    for name, curve in _known(spec, (BASELINE, spec.winner), find):
        shaped = read_proof(cache, CONFIRMED_LINK, curve.spec, curve.spec.steps)
        if shaped is not None:
            found[name] = shaped
    return found


def prove(spec: TimeToLossSpec, names: Sequence[str], cache: Path, find: Find, *, whole: bool, show: Show) -> None:
    """Run on the shaped link what is not kept yet, for every named contender that has a curve.

    Args:
        whole: to the end, for the minutes; else only the steps after which bits are compared.

    Raises:
        ClusterError: no lab can be made here, or a rank failed.
    """
    for name, curve in _known(spec, names, find):
        steps = curve.spec.steps if whole else curve.spec.proof_steps
        path = proof_path(cache, CONFIRMED_LINK, curve.spec, steps)
        if path.exists():
            continue
        with Lab(LabSpec(hosts=spec.hosts, link=CONFIRMED_LINK)) as lab:
            keep(path, train_in_lab(lab, curve.spec, steps, watch=_watch(name, show)).model_dump_json())


def _known(spec: TimeToLossSpec, names: Sequence[str], find: Find) -> list[tuple[str, Curve]]:
    seen = [(name, reach(spec, name, 0, find)) for name in names]
    return [(name, each.curve) for name, each in seen if each is not None and each.curve.torch == torch.__version__]


def _watch(name: str, show: Show) -> Watch:
    return lambda taken, of, loss: show(Glance(f"at {CONFIRMED_LINK}", name, taken / of, None, f"{name}, step {taken}"))
