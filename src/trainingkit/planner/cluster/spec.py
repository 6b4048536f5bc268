"""A cluster: how many devices of which kind, on which links, at what price."""

from __future__ import annotations

from pydantic import Field

from trainingkit.core.section import Section
from trainingkit.planner.cluster.gpu import Gpu


class Cluster(Section):
    """A homogeneous cluster.

    `far_gbit` is the network rate of one device, `far_latency_us` that of one hop between hosts.
    """

    gpu: Gpu = Field(description="the device")
    nodes: int = Field(gt=0, le=1_000_000, description="hosts")
    per_node: int = Field(gt=0, le=10_000, description="devices on a host")
    island: int = Field(gt=0, description="devices that fast links join")
    far_gbit: float = Field(gt=0, description="network rate of one device, Gbit/s")
    far_latency_us: float = Field(default=20.0, gt=0, description="latency of one hop between hosts")
    price_per_gpu_hour: float | None = Field(default=None, ge=0, description="price of a device for an hour")

    def __hash__(self) -> int:
        return hash((self.gpu, self.nodes, self.per_node, self.island, self.far_gbit))

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.nodes * self.per_node

    @property
    def far_bytes_s(self) -> float:
        """Bytes a second that one device sends over the network."""
        return self.far_gbit * 1e9 / 8
