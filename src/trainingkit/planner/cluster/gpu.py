"""One kind of device: data-sheet figures, and what of them large matrix products and copies really reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trainingkit.core.section import Section

Rate = Annotated[float, Field(gt=0)]


class Gpu(Section):
    """A device. Rates are dense, in TFLOP/s; memory in GB (10^9 bytes for rates, 2^30 for capacity)."""

    name: str = Field(min_length=1, description="name in the catalogue")
    also: list[str] = Field(default=[], description="other names for it")
    memory_gib: float = Field(gt=0, description="memory of one device")
    memory_gbps: float = Field(gt=0, description="data-sheet memory bandwidth, GB/s")
    peak: dict[str, Rate] = Field(description="data-sheet TFLOP/s by precision")
    achievable: dict[str, Rate] = Field(description="TFLOP/s that the best large matrix products reach, by precision")
    units: int = Field(gt=0, description="multiprocessors")
    near_gbps: float = Field(gt=0, description="bus bandwidth of a collective inside the island, GB/s")
    near_latency_us: float = Field(default=8.0, gt=0, description="latency of one hop inside the island")
    far_gbit: float = Field(gt=0, description="usual network rate of one device, Gbit/s")
    island: int = Field(default=8, gt=0, description="devices that the fast links join")
    host_us: float = Field(default=5.0, gt=0, description="host time to launch one kernel of a compiled layer")
    flash: bool = Field(default=True, description="whether its software stack has fused attention by default")

    @model_validator(mode="after")
    def _within_the_data_sheet(self) -> Gpu:
        for precision, rate in self.achievable.items():
            if precision in self.peak and rate > self.peak[precision]:
                raise ValueError(f"achievable.{precision} at most peak.{precision}, which is {self.peak[precision]:g}")
        return self

    def __hash__(self) -> int:
        rates = tuple(sorted(self.achievable.items()))
        return hash((self.name, self.memory_gib, self.memory_gbps, self.units, self.near_gbps, rates))

    def rate(self, precision: str) -> float:
        """Achievable flop/s in `precision`; of one that the device lacks, the next wider one."""
        return 1e12 * _widened(self.achievable, precision)

    def peak_rate(self, precision: str) -> float:
        """Data-sheet flop/s in `precision`."""
        return 1e12 * _widened(self.peak, precision)

    @property
    def memory_bytes(self) -> float:
        """Bytes on one device."""
        return self.memory_gib * 2**30

    def has(self, precision: str) -> bool:
        """Whether its matrix units compute in `precision`."""
        return precision in self.achievable


WIDER = {"fp8": "bf16", "bf16": "fp16", "fp16": "tf32", "tf32": "fp32"}


def _widened(rates: dict[str, float], precision: str) -> float:
    while precision not in rates and precision in WIDER:
        precision = WIDER[precision]
    return rates[precision]
