"""Is advice true? The forecast of each rung's step beside the steps that the same ranks then take. Pure.

error            |predicted / measured - 1|, by rung; measured: the median of the turns
advise_error     the worst of them on a link, with the bounds that the medians' 90 % intervals give
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from trainingkit.bench.advise.facts import Facts
from trainingkit.bench.network.spec import REFERENCE, NetworkSpec
from trainingkit.bench.paired import Turns
from trainingkit.bench.result import Check, Result, known, make_check, make_result
from trainingkit.bench.stats import Interval, median_interval
from trainingkit.core.errors import ClusterError
from trainingkit.core.section import Section
from trainingkit.sync.auto.advice import Advice, Row, advise
from trainingkit.sync.auto.ladder import LADDER, PLAIN, Rung

GOAL = "<= 0.15"
PROVED = LADDER[:7]
"""All rungs but the coarsest."""


def name_of(rung: Rung) -> str:
    """What the rung is called among the contenders; "none" is there the step without an exchange."""
    return "plain DDP" if rung.codec == PLAIN else str(rung)


class ProofSpec(Section):
    """One run: the lab, and on each link the measuring and the turns."""

    hosts: int = Field(default=4, ge=2)
    links: list[str] = Field(default=["100mbit", "25mbit"], min_length=1)
    scale: str = "full"
    rounds: int = Field(default=5, ge=1)
    seed: int = Field(default=0, ge=0)
    timeout_s: float = Field(default=240.0, gt=0)

    def network(self) -> NetworkSpec:
        """The same job as the network bench's."""
        return NetworkSpec(hosts=self.hosts, scale=self.scale, seed=self.seed, timeout_s=self.timeout_s)


@dataclass
class Proof:
    """What one link showed.

    Args:
        facts: from which the advice follows, as `Facts.to_json` gives them.
        seconds: contender -> seconds of its turns; contenders are `REFERENCE` and the rungs, see `name_of`.
        said_bytes: contender -> bytes that rank 0 says it sent in its last turn.
        failed: contender -> why it takes no more turns.
    """

    link: str
    facts: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    said_bytes: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(link: str, facts: Facts, turns: Turns, said_bytes: dict[str, float]) -> Proof:
        """From what a rank has."""
        seconds = {name: list(of.values()) for name, of in turns.seconds.items()}
        return Proof(link, facts.to_json(), seconds, said_bytes, dict(turns.failed))

    @property
    def advice(self) -> Advice:
        """What would have been said."""
        return advise(Facts.from_json(self.facts).situation)


def gate_of(place: int) -> str:
    """The gate behind which links are as the spec's entry at that place says."""
    return f"link-{place}"


def to_json(proofs: list[Proof]) -> str:
    """As text."""
    return json.dumps([dataclasses.asdict(proof) for proof in proofs])


def from_json(text: str) -> list[Proof]:
    """From `to_json`."""
    return [Proof(**values) for values in json.loads(text)]


def summarise(spec: ProofSpec, proofs: list[Proof], *, command: str) -> Result:
    """The shared result.

    Raises:
        ClusterError: a rung took no turn.
    """
    for proof in proofs:
        _check_turns(proof)
    notes = Facts.from_json(proofs[0].facts).notes
    return make_result(
        "advise",
        command=command,
        checks=[check_of(proof) for proof in proofs],
        rows=[row for proof in proofs for row in rows_of(proof)],
        facts={"hosts": spec.hosts, "rounds": spec.rounds, **notes} | {p.link: facts_of(p) for p in proofs},
    )


def check_of(proof: Proof) -> Check:
    """The worst error of a link."""
    errors = [error_of(row.step_s, proof.seconds[name_of(row.rung)]) for row in proof.advice.rows]
    worst = Interval(*(max(getattr(error, name) for error in errors) for name in ("value", "low", "high")))
    return make_check(f"advise_error@{proof.link}", worst, GOAL)


def error_of(predicted_s: float, turns: list[float]) -> Interval:
    """|predicted / measured - 1|, and what it may be within the interval of the median."""
    found = median_interval(turns)
    ends = [abs(predicted_s / bound - 1.0) for bound in (found.low, found.high)]
    inside = found.low <= predicted_s <= found.high
    return Interval(abs(predicted_s / found.value - 1.0), 0.0 if inside else min(ends), max(ends))


def rows_of(proof: Proof) -> list[dict[str, Any]]:
    """A row for the step without an exchange, and one for each rung."""
    advice = proof.advice
    none_s = median_interval(proof.seconds[REFERENCE])
    none = {"link": proof.link, "rung": "no exchange", **_compared(advice.situation.none_s, none_s)}
    return [none, *(_row(proof, row) for row in advice.rows)]


def facts_of(proof: Proof) -> dict[str, Any]:
    """What was measured beforehand, what was advised, and what the turns say was best."""
    advice = proof.advice
    situation = advice.situation
    medians = {name_of(row.rung): median_interval(proof.seconds[name_of(row.rung)]).value for row in advice.rows}
    return {
        "link_mbit_s": 8e-6 * situation.link.bytes_per_s,
        "latency_s": situation.link.latency_s,
        **dataclasses.asdict(situation.window),
        "rest_s": situation.rest_s,
        "stretch": situation.loads[-1].stretch,
        "stretch of plain": situation.loads[0].stretch,
        "rho": advice.rho,
        "advised": name_of(advice.chosen.rung),
        "quickest": min(medians, key=lambda name: medians[name]),
    }


def _row(proof: Proof, row: Row) -> dict[str, Any]:
    name = name_of(row.rung)
    return {
        "link": proof.link,
        "rung": name,
        **_compared(row.step_s, median_interval(proof.seconds[name])),
        "exposed_s": row.exposed_s,
        "code_s": row.code_s,
        "sent_mb": row.sent_bytes / 1e6,
        "said_mb": proof.said_bytes[name] / 1e6,
        "turns": len(proof.seconds[name]),
    }


def _compared(predicted_s: float, measured: Interval) -> dict[str, Any]:
    return {
        "predicted_s": predicted_s,
        "measured_s": measured.value,
        "low_s": known(measured.low),
        "high_s": known(measured.high),
        "error": predicted_s / measured.value - 1.0,
    }


def _check_turns(proof: Proof) -> None:
    if not proof.failed:
        return
    name, why = next(iter(proof.failed.items()))
    raise ClusterError(
        "A rung could not take its turns.",
        field=name,
        found=why,
        expected=f"steps on a link of {proof.link}",
        next_step="Mend that, or try a smaller --scale.",
    )
