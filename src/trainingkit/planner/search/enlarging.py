"""Where no plan fits: what the leanest one needs, and how many hosts would do."""

from __future__ import annotations

from collections import Counter

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import format_bytes
from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.memory.rank import peak_memory
from trainingkit.planner.search.space import Space, layouts

TIMES = (2, 4, 8, 16, 32, 64)
"""As many hosts are tried, in this order."""


def too_little_memory(job: Job, cluster: Cluster, space: Space, every: list[Layout]) -> ConfigError:
    """The error to raise where none of these layouts fits."""
    need, layout = min(((peak_memory(job, cluster, one).high, one) for one in every), key=lambda pair: pair[0])
    nodes = nodes_that_fit(job, cluster, space)
    advice = "a device with more memory, or a smaller model"
    return ConfigError(
        "No plan fits into the memory of these devices.",
        field="cluster",
        found=f"{format_bytes(cluster.gpu.memory_bytes)} each on {cluster.devices} devices; the leanest of "
        f"{len(every):,} plans needs {format_bytes(need)} (tp {layout.tp}, pp {layout.pp}, dp {layout.dp}, "
        f"cp {layout.cp}, ep {layout.ep}, shard {layout.shard}, recompute {layout.recompute})",
        expected=f"devices with {format_bytes(need)}, or more of them",
        next_step=f"Use {nodes} nodes, on which a plan fits; or {advice}."
        if nodes is not None
        else f"Use {advice}: {TIMES[-1]} times as many nodes would not do.",
    )


def nodes_that_fit(job: Job, cluster: Cluster, space: Space) -> int | None:
    """The least multiple of the hosts, of those tried, on which a plan fits; None where none does.

    Only lean layouts are looked at: one sample at a time, with all recomputed. So a plan that is found is there.
    """
    for times in TIMES:
        larger = cluster.model_copy(update={"nodes": times * cluster.nodes})
        lean = (one for one in layouts(job, larger, space, Counter()) if _is_lean(one, job))
        if any(peak_memory(job, larger, one).high <= larger.gpu.memory_bytes for one in lean):
            return larger.nodes
    return None


def _is_lean(layout: Layout, job: Job) -> bool:
    return layout.micro_batch == 1 and (job.is_conv or layout.recompute == "full")
