"""Runs in a lab that back what is composed: the same bits as on open links, and minutes by the clock.

A curve was trained on open links, a step was timed on shaped ones. That both are of one training shows here: the first
steps on a shaped link give the same parameters, bit for bit; and a whole run on it takes about the composed minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from trainingkit.bench.cache import keep, read_kept
from trainingkit.bench.network.run import Glance
from trainingkit.bench.timetoloss.catalogue import BASELINE
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec, Find
from trainingkit.bench.timetoloss.reaching import reach
from trainingkit.bench.timetoloss.spec import TimeToLossSpec
from trainingkit.bench.timetoloss.training import Watch, train_in_lab
from trainingkit.netlab import Lab, LabSpec

CONFIRMED_LINK = "100mbit"
Show = Callable[[Glance], None]


def proof_path(cache: Path, spec: TimeToLossSpec, curve: CurveSpec, steps: int) -> Path:
    """Where a run on the shaped link is kept; its seconds are those of a processor, which is in the name."""
    digest = hashlib.sha256(f"{curve.digest()} {spec.processor}".encode()).hexdigest()
    return cache / "shaped" / f"{CONFIRMED_LINK}-{steps}-{digest[:20]}.json"


def read_proof(cache: Path, spec: TimeToLossSpec, curve: CurveSpec, steps: int) -> Curve | None:
    """The kept run, or None when there is none that can be read."""
    return read_kept(proof_path(cache, spec, curve, steps), Curve)


def same_bits(spec: TimeToLossSpec, names: Sequence[str], cache: Path, find: Find) -> dict[str, bool | None]:
    """Whether a contender's parameters are the same bits on the shaped link; None: that was not tried."""
    found: dict[str, bool | None] = dict.fromkeys(names)
    for name, curve in _known(spec, names, find):
        shaped = read_proof(cache, spec, curve.spec, curve.spec.proof_steps)
        found[name] = None if shaped is None else shaped.proof == curve.proof
    return found


def confirmed(spec: TimeToLossSpec, cache: Path, find: Find) -> dict[str, Curve]:
    """The kept whole runs on the shaped link, of the baseline and the judged contender."""
    found = {}
    for name, curve in _known(spec, (BASELINE, spec.winner), find):
        shaped = read_proof(cache, spec, curve.spec, curve.spec.steps)
        if shaped is not None:
            found[name] = shaped
    return found


def prove(spec: TimeToLossSpec, names: Sequence[str], cache: Path, find: Find, *, whole: bool, show: Show) -> None:
    """Run on the shaped link that of which nothing is kept that can be read, for every named contender with a curve.

    Args:
        whole: to the end, for the minutes; else only the steps after which bits are compared.

    Raises:
        ClusterError: no lab can be made here, or a rank failed.
    """
    for name, curve in _known(spec, names, find):
        steps = curve.spec.steps if whole else curve.spec.proof_steps
        if read_proof(cache, spec, curve.spec, steps) is not None:
            continue
        with Lab(LabSpec(hosts=spec.hosts, link=CONFIRMED_LINK)) as lab:
            shaped = train_in_lab(lab, curve.spec, steps, watch=_watch(name, show))
        keep(proof_path(cache, spec, curve.spec, steps), shaped.model_dump_json())


def _known(spec: TimeToLossSpec, names: Sequence[str], find: Find) -> list[tuple[str, Curve]]:
    seen = [(name, reach(spec, name, 0, find)) for name in names]
    return [(name, each.curve) for name, each in seen if each is not None]


def _watch(name: str, show: Show) -> Watch:
    return lambda taken, of, loss: show(Glance(f"at {CONFIRMED_LINK}", name, taken / of, None, f"{name}, step {taken}"))
