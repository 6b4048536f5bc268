"""The asking side of `bench advise`: the lab, its workers, and the gates that change its links."""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from trainingkit.bench.advise.proof import Proof, ProofSpec, from_json, gate_of, summarise
from trainingkit.bench.network.run import POLL_S, Glance, Show
from trainingkit.bench.network.stage import Stage
from trainingkit.bench.result import Result
from trainingkit.netlab import JobResult, Lab, LabSpec
from trainingkit.netlab.rates import UNSHAPED, parse_rate

WORKER = "trainingkit.bench.advise.proof_worker"
DEADLINE_S = 3600.0


def run(spec: ProofSpec, *, command: str, show: Show = lambda glance: None) -> Result:
    """Measure, advise, prove, and make the shared result.

    Args:
        command: what a person types to get it again.

    Raises:
        ClusterError: no lab can be made here, or a rung failed.
        ConfigError: the spec cannot be used.
    """
    spec.network().job()
    for link in spec.links:
        parse_rate(link, field="--link")
    with Lab(LabSpec(hosts=spec.hosts, link=UNSHAPED)) as lab:
        proofs = _prove(lab, spec, show)
    return summarise(spec, proofs, command=command)


def _prove(lab: Lab, spec: ProofSpec, show: Show) -> list[Proof]:
    with tempfile.TemporaryDirectory(prefix="trainingkit-bench-") as folder, ThreadPoolExecutor(1) as pool:
        stage = Stage(Path(folder))
        stage.spec.write_text(spec.model_dump_json(), encoding="utf-8")
        argv = [sys.executable, "-m", WORKER, folder]
        job = pool.submit(lab.launch, argv, world_size=spec.hosts, deadline_s=DEADLINE_S)
        try:
            _follow(job, lab, spec, stage, show)
        except BaseException:
            lab.close()  # ends the job, for which leaving the pool waits
            raise
        job.result()
        return from_json(stage.measured.read_text(encoding="utf-8"))


def _follow(job: Future[JobResult], lab: Lab, spec: ProofSpec, stage: Stage, show: Show) -> None:
    """Show what rank 0 tells, and give all links the rate that a gate asks for, until the job has ended."""
    rates = {gate_of(place): link for place, link in enumerate(spec.links)}
    place = 0
    while not job.done():
        lines, place = stage.told(place)
        for line in lines:
            if "gate" not in line:
                show(Glance(line["part"], line["contender"], line["done"], None, line["contender"]))
                continue
            for host in lab.hosts:
                lab.set_rate(host, rates[line["gate"]])
            stage.open_gate(line["gate"])
        time.sleep(POLL_S)
