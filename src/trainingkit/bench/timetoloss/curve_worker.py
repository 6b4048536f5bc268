"""One rank of a curve: `python -m trainingkit.bench.timetoloss.curve_worker FOLDER [STEPS]`.

Trains the contender that the folder's spec names; with STEPS only the first so many steps of it. Rank 0 leaves the
curve in the folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from trainingkit.bench.network.joining import joined
from trainingkit.bench.network.rank import Entrant, Rank
from trainingkit.bench.network.stage import Stage
from trainingkit.bench.timetoloss.curve import Curve, CurveSpec
from trainingkit.cluster.ending import run_and_exit
from trainingkit.core.files import write_atomic
from trainingkit.core.section import check


def train(rank: Rank, spec: CurveSpec, stage: Stage, steps: int) -> Curve:
    """The run; the same curve on every rank. Collective."""
    chief = rank.meeting.rank == 0
    entrant = rank.enter(spec.name, rates=spec.rates(), factor=spec.factor())
    said, proof, seconds, eval_seconds = 0, "", 0.0, _look(rank, entrant, steps)
    while entrant.steps < steps:
        began_s = time.monotonic()
        said += rank.step(entrant, rank.batch(entrant))
        seconds += time.monotonic() - began_s
        if entrant.steps == min(spec.proof_steps, steps):
            proof = all_bits(entrant, rank)
        eval_seconds += _look(rank, entrant, steps)
        if chief:
            stage.tell(step=entrant.steps, of=steps, loss=entrant.losses[-1][1])
    end = all_bits(entrant, rank)
    entrant.contender.close()
    return Curve(
        spec=spec,
        losses=entrant.losses,
        proof=proof,
        end=end,
        sent_bytes=said / steps,
        seconds=seconds,
        eval_seconds=eval_seconds,
        torch=torch.__version__,
    )


def _look(rank: Rank, entrant: Entrant, steps: int) -> float:
    """Note the validation loss when one is due, and at the end; the seconds that took."""
    began_s = time.monotonic()
    rank.look(entrant, even_if_not_due=entrant.steps == steps)
    return time.monotonic() - began_s


def all_bits(entrant: Entrant, rank: Rank) -> str:
    """SHA-256 over every rank's parameters, which differ between ranks that train apart. Collective."""
    digests: list[str] = [""] * rank.world_size
    dist.all_gather_object(digests, bits_of(entrant.model), group=rank.meeting.group)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def bits_of(model: nn.Module) -> str:
    """SHA-256 over the parameters' bits."""
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def main(folder: str, steps: int | None = None) -> None:
    """Join the other ranks, train, and on rank 0 leave the curve in the folder."""
    stage = Stage(Path(folder))
    spec = check(CurveSpec, json.loads(stage.spec.read_text(encoding="utf-8")))
    with joined(spec.network(), command="trainingkit bench time-to-loss") as rank:
        rank.compute = spec.compute
        curve = train(rank, spec, stage, min(spec.steps, steps or spec.steps))
        if rank.meeting.rank == 0:
            write_atomic(stage.measured, curve.model_dump_json())


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1], *(int(word) for word in sys.argv[2:])))
