"""cluster.toml: written by hand (gpu, nodes, links) or by `trainingkit probe` (hosts and links as measured)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field

from trainingkit.core import toml
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section, check
from trainingkit.planner.cluster.catalogue import gpu_named
from trainingkit.planner.cluster.gpu import Gpu
from trainingkit.planner.cluster.spec import Cluster

EXAMPLE = 'gpu = "h100"\nnodes = 16\nper_node = 8\nnode_gbit = 3200'


class ClusterFile(Section):
    """What a person writes in cluster.toml."""

    gpu: str = Field(description='a GPU\'s name, for example "h100"')
    nodes: int = Field(default=1, gt=0, le=1_000_000, description="hosts")
    per_node: int = Field(default=8, gt=0, le=10_000, description="devices on a host")
    node_gbit: float | None = Field(default=None, gt=0, description="network rate of a host, Gbit/s")
    latency_us: float = Field(default=20.0, gt=0, description="latency between hosts")
    island: int | None = Field(default=None, gt=0, description="devices that fast links join")
    price_per_gpu_hour: float | None = Field(default=None, ge=0, description="price of a device for an hour")
    device: dict[str, Any] = Field(default={}, description="figures of the device that differ from the catalogue")


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file, in either form.

    Raises:
        ConfigError: not readable, a field that is missing or wrong, or a GPU that is not known.
    """
    remedy = "Write one, or measure it: trainingkit probe. Four lines are enough: " + "; ".join(EXAMPLE.splitlines())
    table = toml.load(path, field="--cluster", remedy=remedy)
    return _from_probe(table) if "hosts" in table else cluster_of(table)


def cluster_of(table: Mapping[str, Any]) -> Cluster:
    """A cluster from the values of a cluster file.

    Raises:
        ConfigError: as `load_cluster`.
    """
    values = {
        k: float(v) if k.endswith(("gbit", "_us", "hour")) and isinstance(v, int) else v for k, v in table.items()
    }
    told = check(ClusterFile, values, field="cluster")
    gpu = _overridden(gpu_named(told.gpu, field="cluster.gpu"), told.device)
    far = told.node_gbit / told.per_node if told.node_gbit is not None else gpu.far_gbit
    return Cluster(
        gpu=gpu,
        nodes=told.nodes,
        per_node=told.per_node,
        island=told.island or (max(gpu.island, told.per_node) if gpu.island > 1 else told.per_node),
        far_gbit=far,
        far_latency_us=told.latency_us,
        price_per_gpu_hour=told.price_per_gpu_hour,
    )


def _overridden(gpu: Gpu, changes: Mapping[str, Any]) -> Gpu:
    if not changes:
        return gpu
    values = gpu.model_dump()
    for key, value in changes.items():
        known = values.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            values[key] = {**known, **value}
        else:
            values[key] = float(value) if isinstance(value, int) and isinstance(known, float) else value
    return check(Gpu, values, field="cluster.device")


def _from_probe(table: Mapping[str, Any]) -> Cluster:
    """What the probe measured: the slowest rank's rates, the median link between hosts."""
    hosts = table["hosts"]
    try:
        names = [host["name"] for host in hosts]
        ranks = max(names.count(name) for name in names)
        bf16, fp32 = (min(host[f"gemm_{kind}_gflops"] for host in hosts) / 1e3 for kind in ("bf16", "fp32"))
        memory = min(host["ram_bytes"] for host in hosts) / 2**30 / ranks
        copy = min(host["copy_gb_per_s"] for host in hosts)
        near, far = _links(table.get("links", []), names)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            "This inventory lacks what the planner needs.",
            field="cluster.hosts",
            found=f"no {error}",
            expected="hosts and links as `trainingkit probe` writes them",
            next_step="Measure again: trainingkit probe",
        ) from error
    rates = {"bf16": bf16, "fp16": bf16, "fp32": fp32}
    cores = max(1, min(int(host.get("threads", 1)) for host in hosts))
    gpu = Gpu(
        name="measured host",
        memory_gib=memory,
        memory_gbps=copy,
        peak=rates,
        achievable=rates,
        units=cores,
        near_gbps=near[0],
        near_latency_us=near[1],
        far_gbit=far[0] * 8,
        island=ranks,
    )
    nodes = len(set(names))
    return Cluster(gpu=gpu, nodes=nodes, per_node=ranks, island=ranks, far_gbit=far[0] * 8, far_latency_us=far[1])


def _links(links: list[Mapping[str, Any]], names: list[str]) -> tuple[tuple[float, float], tuple[float, float]]:
    """(GB/s, us) inside a host and between hosts, each the median of what was measured."""
    inside = [link for link in links if names[link["source"]] == names[link["target"]]]
    between = [link for link in links if names[link["source"]] != names[link["target"]]]
    return _middle(inside or between), _middle(between or inside)


def _middle(links: list[Mapping[str, Any]]) -> tuple[float, float]:
    if not links:
        return 1.0, 100.0
    rate = median(link["bandwidth_bps"] for link in links) / 8e9
    return rate, max(1.0, 1e6 * median(link["latency_s"] for link in links))
