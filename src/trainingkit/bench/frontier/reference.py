"""What schemes are compared with: dense gradients in fp32, one scheme for each optimizer.

A gap is taken to the dense run with the same optimizer and seed, so that it tells of the coding, not of the optimizer.
They are meant for no task by themselves: a sweep adds those that its schemes need.
"""

from __future__ import annotations

from trainingkit.bench.frontier.coder import Exact
from trainingkit.bench.frontier.scheme import OptimizerName, Scheme

REFERENCES: dict[OptimizerName, Scheme] = {
    "adamw": Scheme("dense", "dense fp32", "gradient", Exact, tasks=()),
    "muon": Scheme("dense-muon", "dense fp32, Muon", "gradient", Exact, optimizer="muon", tasks=()),
}


def reference_of(scheme: Scheme) -> Scheme:
    """The dense scheme with the same optimizer."""
    return REFERENCES[scheme.optimizer]
