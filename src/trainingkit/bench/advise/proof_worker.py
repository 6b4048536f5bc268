"""One host's process of `bench advise`: `python -m trainingkit.bench.advise.proof_worker FOLDER`.

Contenders are made and warm on open links. Then, on each link: codecs and link are measured as `advise` does, and in
each round a step without an exchange, beside the turns of the rungs, so that the machine's drift hits both alike.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed as dist

from trainingkit.bench.advise.computing import Stopwatch, Timed, Work
from trainingkit.bench.advise.contenders import of_rung
from trainingkit.bench.advise.measure import facts_from, measure_costs
from trainingkit.bench.advise.proof import PROVED, Proof, ProofSpec, gate_of, name_of, to_json
from trainingkit.bench.contender import data_parallel
from trainingkit.bench.network.joining import joined
from trainingkit.bench.network.rank import CLIP_NORM, PEAK_LR, Entrant, Rank
from trainingkit.bench.network.spec import REFERENCE
from trainingkit.bench.network.stage import Stage
from trainingkit.bench.paired import ContenderFailed, Turns, order
from trainingkit.cluster.ending import run_and_exit
from trainingkit.core.files import write_atomic
from trainingkit.core.section import check, choose
from trainingkit.data.batch import gather
from trainingkit.data.order import SampleOrder
from trainingkit.models import MODELS
from trainingkit.optim import OPTIMIZERS
from trainingkit.sync.bucketsize import bucket_mb, trainable
from trainingkit.trainer.rng import seed_all

WARM_STEPS = 3
BATCHES = 4


class Prover:
    """The parts over one rank's contenders."""

    def __init__(self, spec: ProofSpec, rank: Rank, stage: Stage) -> None:
        self._spec = spec
        self._rank = rank
        self._stage = stage
        self._chief = rank.meeting.rank == 0
        self._entrants: dict[str, Entrant] = {}
        self._turns_left = len(spec.links) * spec.rounds * (1 + len(PROVED))
        self._turns = self._turns_left

    def run(self) -> list[Proof]:
        """All links; the same on every rank."""
        self._enter()
        self.tell("warm-up", 1.0)
        watch = Stopwatch(self._work(), self._rank.meeting.group)
        watch.warm()
        proofs = [self._prove(number, watch) for number in range(len(self._spec.links))]
        for entrant in self._entrants.values():
            entrant.contender.close()
        return proofs

    def tell(self, part: str, done: float, contender: str = "") -> None:
        """Progress."""
        if self._chief:
            self._stage.tell(part=part, contender=contender, done=done)

    def _enter(self) -> None:
        builders = {REFERENCE: None} | {name_of(rung): of_rung(rung) for rung in PROVED}
        for name, build in builders.items():
            self.tell("warm-up", len(self._entrants) / len(builders), name)
            entrant = self._entrants[name] = self._rank.enter(name, build)
            for _ in range(WARM_STEPS):
                self._rank.turn(entrant, 1)

    def _prove(self, place: int, watch: Stopwatch) -> Proof:
        group = self._rank.meeting.group
        dist.barrier(group=group)
        if self._chief:
            self._stage.pass_gate(gate_of(place), timeout_s=self._spec.timeout_s)
        dist.barrier(group=group)
        ranks = self._rank.world_size
        costs = measure_costs(watch, group, PROVED, ranks=ranks, link=None, tell=self.tell)
        turns, said, steps = Turns(), dict[str, float](), list[Timed]()
        for number in range(self._spec.rounds):
            steps.append(watch.step())
            for name in order([n for n in self._entrants if n not in turns.failed], number, self._spec.seed):
                said[name] = self._turn(name, number, turns)
        facts = facts_from(watch, steps, costs, PROVED, ranks=ranks)
        return Proof.of(self._spec.links[place], facts, turns, said)

    def _turn(self, name: str, number: int, turns: Turns) -> float:
        """Take and note one turn; the bytes that this rank says it sent."""
        self.tell("timing", 1.0 - self._turns_left / self._turns, name)
        self._turns_left -= 1
        try:
            turn = self._rank.turn(self._entrants[name], 1)
        except ContenderFailed as error:
            turns.failed[name] = str(error)
            return 0.0
        turns.add(name, number, turn.seconds)
        return turn.said_bytes

    def _work(self) -> Work:
        """The network bench's step, as its contenders wrap it."""
        rank = self._rank
        seed_all(self._spec.seed)
        model = choose(MODELS, rank.scale.model, field="model").build(rank.corpus.info)
        size = rank.scale.batch_size
        samples = SampleOrder(len(rank.corpus.train), self._spec.seed)
        firsts = [(number * rank.world_size + rank.meeting.rank) * size for number in range(BATCHES)]
        return Work(
            model=model,
            optimizer=choose(OPTIMIZERS, {"kind": "adamw", "lr": PEAK_LR}, field="optimizer").build(model),
            batches=[gather(rank.corpus.train, samples.indices(first, size)) for first in firsts],
            wrap=lambda module, group: data_parallel(
                module, group, bucket_cap_mb=bucket_mb(trainable(module)), gradient_as_bucket_view=True
            ),
            clip_norm=CLIP_NORM,
            compute=rank.compute,
        )


def main(folder: str) -> None:
    """Join the other hosts, measure and prove, and on rank 0 leave the figures in the folder."""
    stage = Stage(Path(folder))
    spec = check(ProofSpec, json.loads(stage.spec.read_text(encoding="utf-8")))
    with joined(spec.network(), command="trainingkit bench advise") as rank:
        proofs = Prover(spec, rank, stage).run()
        if rank.meeting.rank == 0:
            write_atomic(stage.measured, to_json(proofs))


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1]))
