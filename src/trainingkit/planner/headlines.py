"""What no cluster can do: tokens in a given time, and days for given tokens, at 100 % of the data sheet's peak.

Six flops per parameter and token (nothing for attention, which only makes it worse).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.layout import Job
from trainingkit.planner.models import Transformer


@dataclass(frozen=True)
class Ceiling:
    """The cluster at its peak."""

    flops_per_s: float
    flops_per_token: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second at 100 %."""
        return self.flops_per_s / self.flops_per_token

    def tokens_in(self, hours: float) -> float:
        """Tokens seen in so many hours at 100 %."""
        return 3600 * hours * self.tokens_per_s

    def days_for(self, tokens: float) -> float:
        """Days for so many tokens at 100 %."""
        return tokens / self.tokens_per_s / 86400


def ceiling(job: Job, cluster: Cluster) -> Ceiling:
    """The data sheet's promise for this model."""
    params = job.model.params(active=True) if isinstance(job.model, Transformer) else job.model.params()
    per_token = 6.0 * params if isinstance(job.model, Transformer) else 3.0 * job.model.forward_flops(1)
    return Ceiling(cluster.devices * cluster.gpu.peak_rate(job.precision), per_token)
