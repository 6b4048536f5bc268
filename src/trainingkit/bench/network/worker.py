"""One host's process of the network bench: `python -m trainingkit.bench.network.worker FOLDER`.

Four parts: warm-up on open links, steps in which who chooses by itself may do so, paired turns on shaped links, then
more steps on open links until all contenders that agree have taken as many; the last part is for losses only.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import torch.distributed as dist

from trainingkit.bench.network.joining import joined
from trainingkit.bench.network.rank import Entrant, Rank
from trainingkit.bench.network.spec import JUDGED, REFERENCE, TWIN, Measured, NetworkSpec
from trainingkit.bench.network.stage import SHAPE, UNSHAPE, Stage
from trainingkit.bench.paired import ContenderFailed, Plan, Turns, measure
from trainingkit.cluster.ending import run_and_exit
from trainingkit.core.errors import ClusterError
from trainingkit.core.files import write_atomic
from trainingkit.core.section import check
from trainingkit.sync.section import AUTO_CODEC

FEWEST_FOR_BOUNDS = 5
"""Turns of a guest whose ratio is a claim: that the controller is never slower than plain DDP."""
SETTLE_STEPS = 100
"""The most that a contender may take to find its way of sending."""


class Worker:
    """The parts over one rank's contenders."""

    def __init__(self, rank: Rank, stage: Stage) -> None:
        self.rank = rank
        self.spec = rank.spec
        self.stage = stage
        self.chief = rank.meeting.rank == 0
        self.measured = Measured()
        self.entrants: dict[str, Entrant] = {}

    def run(self) -> Measured:
        """All parts; what was measured, on every rank."""
        self._warm_up()
        self._settle(searching=False)
        self._gate(SHAPE)
        self._settle(searching=True)
        turns = self._time()
        self.measured.seconds, self.measured.rounds = turns.seconds, turns.rounds
        self.measured.failed |= turns.failed
        for name, entrant in self.entrants.items():
            if entrant.contender.told is not None:
                self.measured.labels[name] = entrant.contender.told()
        self._gate(UNSHAPE)
        self._catch_up()
        for name, entrant in self.entrants.items():
            self.measured.losses[name] = entrant.losses
            entrant.contender.close()
        return self.measured

    def _warm_up(self) -> None:
        for name in (REFERENCE, TWIN, JUDGED, *self.spec.contenders):
            self._tell("warm-up", name, len(self.entrants) / (3 + len(self.spec.contenders)))
            entrant = self.entrants[name] = self.rank.enter(name)
            self.measured.labels[name] = entrant.contender.label
            self.rank.look(entrant)
            for _ in range(self._warm_steps(entrant)):
                if name not in self.measured.failed:
                    self._try_step(entrant)
        self.measured.facts = self.rank.facts(self.entrants[REFERENCE])

    def _warm_steps(self, entrant: Entrant) -> int:
        """Whole periods, and then so many that a turn begins in a quiet moment."""
        return _whole(self.spec.warm_steps, entrant.contender.period) + entrant.contender.lead()

    def _settle(self, *, searching: bool) -> None:
        """Steps until a contender sends as it will go on sending, on all ranks alike.

        Args:
            searching: those that look at the link to find out; else those that only have a warm-up.
        """
        for name, entrant in self.entrants.items():
            if entrant.contender.searches != searching:
                continue
            taken = 0
            while name not in self.measured.failed and not entrant.contender.settled() and taken < SETTLE_STEPS:
                self._tell("settling", name, taken / SETTLE_STEPS)
                steps = entrant.contender.rhythm()[0] if entrant.contender.rhythm is not None else 1
                self._try_step(entrant, steps)
                taken += steps
            if taken and searching:
                how = "" if entrant.contender.settled() else "not within "
                self.measured.facts["settled_after"] = f"{how}{taken} steps"

    def _time(self) -> Turns:
        failed = self.measured.failed
        if {REFERENCE, TWIN} & set(failed):
            raise ClusterError(
                f"The reference cannot take a step: {failed}",
                field="bench network",
                next_step="Mend that; it trains without any exchange. A smaller --scale needs less memory.",
            )
        fewest = FEWEST_FOR_BOUNDS if self.spec.codec == AUTO_CODEC else Plan.guest_turns
        plan = Plan(
            reference=REFERENCE,
            twin=TWIN,
            judged=tuple(name for name in (JUDGED,) if name not in failed),
            guests=tuple(name for name in self.spec.contenders if name not in failed),
            rounds=self.spec.rounds,
            budget_s=self.spec.timing_s / self.spec.steps_per_turn,
            guest_turns=self.spec.guest_turns or fewest,
            seed=self.spec.seed,
        )
        return measure(plan, self._timed_turn, after_round=lambda turns: self._tell_round(plan, turns))

    def _timed_turn(self, name: str) -> float:
        entrant = self.entrants[name]
        self._tell("timing", name)
        turn = self.rank.turn(entrant, _whole(self.spec.steps_per_turn, self._period(entrant)), rests=True)
        if turn.wire_bytes is not None:
            self.measured.wire_bytes.setdefault(name, []).append(turn.wire_bytes)
        self.measured.said_bytes.setdefault(name, []).append(turn.said_bytes)
        self.rank.look(entrant)
        return turn.seconds

    def _period(self, entrant: Entrant) -> int:
        """Steps of a turn's unit. Where a contender changes it, steps up to where a turn may begin are not timed."""
        contender = entrant.contender
        if contender.rhythm is None:
            return contender.period
        for _ in range(contender.rhythm()[1]):
            self._try_step(entrant)
        return contender.rhythm()[0]

    def _catch_up(self) -> None:
        """Steps on open links, always the contender that is furthest behind, until there are enough or time is up."""
        began_s = time.monotonic()
        while True:
            running = [e for e in self.entrants.values() if e.contender.agrees and e.name not in self.measured.failed]
            behind = min(running, key=lambda entrant: entrant.steps, default=None)
            spent = self.rank.agree((time.monotonic() - began_s) / max(self.spec.losses_s, 1e-9))
            if behind is None or behind.steps >= self.spec.loss_steps or spent >= 1:
                return
            self._tell("losses", behind.name, max(spent, behind.steps / self.spec.loss_steps))
            self._try_step(behind)

    def _try_step(self, entrant: Entrant, steps: int = 1) -> None:
        try:
            self.rank.turn(entrant, steps)
        except ContenderFailed as error:
            self.measured.failed[entrant.name] = str(error)
            return
        self.rank.look(entrant)

    def _gate(self, gate: str) -> None:
        dist.barrier(group=self.rank.meeting.group)
        if self.chief:
            self.stage.pass_gate(gate, timeout_s=self.spec.timeout_s)
        dist.barrier(group=self.rank.meeting.group)

    def _tell(self, part: str, name: str, done: float | None = None) -> None:
        if self.chief:
            self.stage.tell(part=part, contender=name, done=done)

    def _tell_round(self, plan: Plan, turns: Turns) -> None:
        if self.chief:
            done = max(turns.total_s() / plan.budget_s, turns.rounds / plan.most_rounds)
            kept = turns.kept_share(JUDGED, REFERENCE).value
            self.stage.tell(part="timing", contender="", done=done, rounds=turns.rounds, kept_share=f"{kept:.3f}")


def _whole(steps: int, period: int) -> int:
    """The least number of whole periods that holds so many steps, in steps."""
    return period * math.ceil(steps / period)


def main(folder: str) -> None:
    """Join the other hosts, measure, and on rank 0 leave the figures in the folder."""
    stage = Stage(Path(folder))
    spec = check(NetworkSpec, json.loads(stage.spec.read_text(encoding="utf-8")))
    with joined(spec, command="trainingkit bench network") as rank:
        worker = Worker(rank, stage)
        measured = worker.run()
        if worker.chief:
            write_atomic(stage.measured, measured.to_json())


if __name__ == "__main__":
    run_and_exit(lambda: main(sys.argv[1]))
