"""One ranked plan: its layout, its step's seconds with their parts, its memory, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.step import StepTime
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.memory.rank import Memory
from trainingkit.planner.models import Transformer

TIME_ERROR = 0.17
"""Nine in ten of the measured runs that the planner is scored on are within this of its stock prediction."""
MECHANISM_SHARE = 0.005
"""What a mechanism must gain to be worth its trouble."""


@dataclass(frozen=True)
class Plan:
    """A layout and what the model says of it."""

    job: Job
    cluster: Cluster
    layout: Layout
    time: StepTime
    memory: Memory

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.time.step_s

    @property
    def merit_s(self) -> float:
        """What plans are ranked by: the step's seconds, and half a per cent for each mechanism that it needs."""
        return self.step_s * complexity(self.layout)

    @property
    def bar_s(self) -> tuple[float, float]:
        """The error bar of `step_s`."""
        return self.step_s * (1 - TIME_ERROR), self.step_s * (1 + TIME_ERROR)

    @property
    def tokens_per_s(self) -> float:
        """Tokens (or images) a second of the whole cluster."""
        return self.job.tokens / self.step_s

    @property
    def model_flops(self) -> float:
        """Flops of a step that the model needs; what is computed again is not counted."""
        return step_flops(self.job)

    @property
    def mfu(self) -> float:
        """Model flops over the data sheet's peak."""
        return self.model_flops / self.step_s / self.layout.devices / self.cluster.gpu.peak_rate(self.job.precision)

    @property
    def of_achievable(self) -> float:
        """Model flops over the achievable matmul rate; above one would be impossible."""
        return self.model_flops / self.step_s / self.layout.devices / self.cluster.gpu.rate(self.job.precision)

    def days_to(self, tokens: float) -> float:
        """Days until so many tokens are seen, without a failure."""
        return tokens / self.tokens_per_s / 86400

    def price_to(self, tokens: float) -> float | None:
        """What that costs, where the cluster has a price."""
        price = self.cluster.price_per_gpu_hour
        return None if price is None else self.days_to(tokens) * 24 * price * self.layout.devices


def complexity(layout: Layout) -> float:
    """A factor: a mechanism that gains less than the figures can tell is not worth having."""
    used = (
        layout.tp > 1,
        layout.pp > 1,
        layout.cp > 1,
        layout.ep > 1,
        layout.schedule != "1f1b",
        layout.recompute != "none",
        layout.shard > 0,
        layout.shard > 1,
    )
    return 1.0 + MECHANISM_SHARE * sum(used)


def step_flops(job: Job) -> float:
    """Three forward passes (one, and two for backward); attention of decoders counts in full, as is customary."""
    if isinstance(job.model, Transformer):
        return 3.0 * job.model.forward_flops(job.tokens, job.seq)
    return 3.0 * job.model.forward_flops(job.global_batch)
