"""One host's process of the bench of changing links: `python -m trainingkit.bench.changes.worker FOLDER`.

A job under the controller takes steps while the links change; then a second copy of it, from the same seed, repeats the
moves that were written down, on open links, and must come to the same parameters.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from trainingkit.bench.changes.spec import ChangesSpec, Found, Phase
from trainingkit.bench.contenders.squeezed import squeezed
from trainingkit.bench.network.joining import joined
from trainingkit.bench.network.rank import Entrant, Rank
from trainingkit.bench.network.stage import UNSHAPE, Stage
from trainingkit.cluster.ending import run_and_exit
from trainingkit.core.files import write_atomic
from trainingkit.core.section import check
from trainingkit.netlab.rates import parse_rate
from trainingkit.sync.auto.flying import Auto
from trainingkit.sync.auto.forecast import Link
from trainingkit.sync.auto.moves import write_move
from trainingkit.sync.listening import of_gradients
from trainingkit.sync.piloting import AutoSettings


class Worker:
    """The run and its replay on one rank."""

    def __init__(self, rank: Rank, spec: ChangesSpec, stage: Stage) -> None:
        self.rank = rank
        self.spec = spec
        self.stage = stage
        self.chief = rank.meeting.rank == 0
        self.moves_file = stage.folder / "decisions.jsonl"

    def run(self) -> Found:
        """Both."""
        entrant = self.rank.enter("squeezed")
        pilot = _pilot_of(entrant)
        found = Found(facts=self.rank.facts(entrant))
        for number, rate in enumerate(self.spec.rates):
            found.phases.append(self._phase(entrant, pilot, rate, number))
        moves = [[move.step, str(move.rung)] for move in pilot.moves]
        found.same_decisions = self._same(json.dumps(moves))
        if self.chief:
            for move in pilot.moves:
                write_move(self.moves_file, move)
        self._gate(UNSHAPE)
        found.same_bits = self._replay(entrant)
        return found

    def _phase(self, entrant: Entrant, pilot: Auto, rate: str, number: int) -> Phase:
        self._gate(f"rate-{number}", rate=rate)
        first, known = entrant.steps, len(pilot.moves)
        for taken in range(self.spec.steps):
            self._tell(f"at {rate}", taken / self.spec.steps, pilot)
            self.rank.turn(entrant, 1)
        moves = [[move.step, str(move.rung), move.reason] for move in pilot.moves[known:]]
        rung = str(pilot.moves[-1].rung)
        right, behind = _right(pilot, rate, rung)
        return Phase(rate, first, entrant.steps, rung, right, behind, moves)

    def _replay(self, entrant: Entrant) -> bool:
        auto = AutoSettings(replay=self.moves_file)
        again = self.rank.enter("replay", partial(squeezed, codec="auto", normalise=False, auto=auto))
        while again.steps < entrant.steps:
            self._tell("replay", again.steps / entrant.steps, None)
            self.rank.turn(again, 1)
        same = digest(again.model) == digest(entrant.model)
        with again.contender.agreed():
            return self._same(f"{same} {digest(again.model)}") and same

    def _same(self, text: str) -> bool:
        """Whether all ranks have the same text."""
        texts: list[str | None] = [None] * dist.get_world_size(self.rank.meeting.group)
        dist.all_gather_object(texts, text, group=self.rank.meeting.group)
        return len(set(texts)) == 1

    def _gate(self, gate: str, **line: str) -> None:
        dist.barrier(group=self.rank.meeting.group)
        if self.chief:
            self.stage.tell(part="links", contender="", **line)
            self.stage.pass_gate(gate, timeout_s=self.spec.timeout_s)
        dist.barrier(group=self.rank.meeting.group)

    def _tell(self, part: str, done: float, pilot: Auto | None) -> None:
        if self.chief:
            figures = {"rung": str(pilot.moves[-1].rung)} if pilot is not None else {}
            self.stage.tell(part=part, contender="", done=done, **figures)


def digest(model: nn.Module) -> str:
    """SHA-256 over all parameters' bits."""
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _pilot_of(entrant: Entrant) -> Auto:
    sync = entrant.contender.sync
    squeezed = of_gradients(sync) if sync is not None else None
    assert squeezed is not None and isinstance(squeezed.pilot, Auto)
    return squeezed.pilot


def _right(pilot: Auto, rate: str, rung: str) -> tuple[str, float]:
    """What the forecast picks for the true rate, and how far behind it the rung is by the same forecast."""
    rate_bps = parse_rate(rate, field="--rates")
    times = pilot.seconds_on(Link((rate_bps or 1e11) / 8))
    if times is None:
        return "unknown", float("nan")
    names = [str(each) for each in pilot.rungs]
    right = pilot.choose(times)
    return names[right], times[names.index(rung)] / times[right]


def main(folder: str) -> None:
    """Join the other hosts, run, and on rank 0 leave what was found in the folder."""
    stage = Stage(Path(folder))
    spec = check(ChangesSpec, json.loads(stage.spec.read_text(encoding="utf-8")))
    with joined(spec.network(), command="trainingkit bench changes") as rank:
        worker = Worker(rank, spec, stage)
        found = worker.run()
        if worker.chief:
            write_atomic(stage.measured, found.to_json())


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1]))
