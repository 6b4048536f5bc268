"""The planner's front door: names and numbers in, ranked plans out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest
from trainingkit.planner.cluster import Cluster, cluster_of, load_cluster
from trainingkit.planner.cluster.shorthand import from_shorthand
from trainingkit.planner.explain import Neighbour, neighbours, reasons
from trainingkit.planner.layout import Job
from trainingkit.planner.models import Model, Transformer, find_model
from trainingkit.planner.search import Found, Plan, Space, search
from trainingkit.planner.search.pins import parse_pins

MOST = 10_000_000
PRECISIONS = ("bf16", "fp8", "fp16", "tf32", "fp32")
Objective = Literal["time", "cost"]
LARGE_PARAMS, LARGE_TOKENS, SMALL_TOKENS, IMAGES = 1e10, 4_194_304, 1_048_576, 4096


@dataclass(frozen=True)
class Answer:
    """Plans in order of merit, and why.

    Args:
        job, cluster: what was asked.
        found: the search's own account.
    """

    job: Job
    cluster: Cluster
    found: Found

    @property
    def plans(self) -> list[Plan]:
        """The best first."""
        return self.found.plans

    @property
    def best(self) -> Plan:
        """The first."""
        return self.found.plans[0]

    def reasons(self) -> list[str]:
        """Why the winner wins, and which rules cut what."""
        return reasons(self.found)

    def neighbours(self) -> list[Neighbour]:
        """What each plan one choice away would lose."""
        return neighbours(self.best)


def plan(
    model: Any,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    *,
    seq: int | None = None,
    global_batch: int | None = None,
    precision: str = "bf16",
    top: int = 10,
    objective: Objective = "time",
    fix: str = "",
    space: Space | None = None,
    show: Callable[[float], None] | None = None,
) -> Answer:
    """Rank the layouts of a model on a cluster.

    Args:
        model: a preset ("llama3-70b"), a Hugging Face `config.json`, or a module with a config.
        cluster: a cluster file, its values, or "h100:16x8" for 16 hosts of 8.
        seq: tokens per sample; default: the model's own, at most 8,192.
        global_batch: samples per step; default: about 4 million tokens (1 million below 10 billion parameters).
        precision: "bf16", "fp8", "fp16", "tf32" or "fp32".
        top: how many plans.
        objective: "time": the fastest on all devices. "cost": fewer hosts are tried, too, and the cheapest wins.
        fix: what is already decided, for example "tp=8, recompute=full".
        space: what may be varied.
        show: told the share that is done.

    Raises:
        ConfigError, ModelError: with field, found, expected, and the nearest thing that works.

    Example:
        answer = trainingkit.plan(model="llama3-70b", cluster="cluster.toml")
        print(answer.best.layout, answer.best.step_s)
    """
    shape, where = find_model(model), find_cluster(cluster)
    _check(precision, where, seq, global_batch, top)
    _check_length(shape, seq)
    length = seq or (shape.seq if isinstance(shape, Transformer) else 1)
    job = Job(shape, length, global_batch or default_batch(shape, length, where.devices), precision)
    seek = partial(search, job, space=space or Space(), top=top, pins=parse_pins(fix) if fix else (), show=show)
    return Answer(job, where, seek(where)) if objective == "time" else _cheapest(job, where, seek)


def find_cluster(source: str | Path | Mapping[str, Any] | Cluster) -> Cluster:
    """A cluster from any of its forms."""
    if isinstance(source, Cluster):
        return source
    if isinstance(source, Mapping):
        return cluster_of(source)
    return from_shorthand(str(source)) or load_cluster(Path(source))


def default_batch(model: Model, seq: int, devices: int) -> int:
    """Samples of a usual step, dealt evenly: a power of two times the odd part of the device count."""
    large = model.params() > LARGE_PARAMS
    wanted = (LARGE_TOKENS if large else SMALL_TOKENS) // seq if isinstance(model, Transformer) else IMAGES
    odd = devices // (devices & -devices)
    batch = odd
    while batch * 2 <= max(wanted, devices) or batch % (devices & -devices):
        batch *= 2
    return batch


def _check(precision: str, cluster: Cluster, seq: int | None, batch: int | None, top: int) -> None:
    if precision not in PRECISIONS:
        close = nearest(precision, PRECISIONS)
        raise ConfigError(
            f"There is no precision called {precision!r}.",
            field="--precision",
            found=repr(precision),
            expected="one of " + ", ".join(PRECISIONS),
            next_step=f"Did you mean {close!r}?" if close else "Choose one of these.",
        )
    if precision == "fp8" and not cluster.gpu.has("fp8"):
        raise ConfigError(
            f"{cluster.gpu.name} has no 8-bit matrix units.",
            field="--precision",
            found="'fp8'",
            expected="one of " + ", ".join(sorted(cluster.gpu.achievable)),
            next_step="Use --precision bf16.",
        )
    for field, value in (("--seq", seq), ("--global-batch", batch), ("--top", top)):
        if value is not None and not 1 <= value <= MOST:
            raise ConfigError(
                "This number must be positive, and not beyond all measure.",
                field=field,
                found=str(value),
                expected=f"1 to {MOST:,}",
                next_step="Leave it out for the default.",
            )


def _check_length(shape: Model, seq: int | None) -> None:
    """A model with learned positions has so many, and no more."""
    most = shape.positions if isinstance(shape, Transformer) else 0
    if seq is None or not most or seq <= most:
        return
    raise ConfigError(
        "The model has not so many positions.",
        field="--seq",
        found=str(seq),
        expected=f"at most {most}, the positions that it has learned",
        next_step=f"Use --seq {most}, or a configuration with more positions.",
    )


def _cheapest(job: Job, cluster: Cluster, seek: Callable[[Cluster], Found]) -> Answer:
    """The cheapest device-seconds per sample over host counts that halve from all down to one."""
    if cluster.price_per_gpu_hour is None:
        raise ConfigError(
            "To compare costs the cluster needs a price.",
            field="cluster.price_per_gpu_hour",
            found="nothing",
            expected="the price of one device for an hour",
            next_step="Add price_per_gpu_hour to the cluster file, or use --objective time.",
        )
    best: Answer | None = None
    nodes = cluster.nodes
    while nodes >= 1:
        fewer = cluster.model_copy(update={"nodes": nodes})
        try:
            answer = Answer(job, fewer, seek(fewer))
        except ConfigError:
            if best is None and nodes == 1:
                raise
            answer = best
        if answer is not None and (best is None or _device_seconds(answer) < _device_seconds(best)):
            best = answer
        nodes //= 2
    assert best is not None
    return best


def _device_seconds(answer: Answer) -> float:
    return answer.best.step_s * answer.cluster.devices
