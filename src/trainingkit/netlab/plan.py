"""Which links a lab has: pure names and numbers, no system call.

Each host has one device `eth0`. Its other end, `h0`, `h1`, ..., lies in the parent namespace on the switch (a bridge)
of the host's island, `sw0`, `sw1`, ... Islands hang on one more switch, `core`, by an uplink each (`up0` on the
island's side, `core0` on the other), so that hosts of different islands meet through two uplinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainingkit.netlab.spec import LabSpec

DEVICE = "eth0"
CORE = "core"
PREFIX_LENGTH = 24


@dataclass(frozen=True)
class Link:
    """A cable with two ends; `near` is the end of the host (or of the island), `far` the one towards the switch.

    Args:
        host: the host that `near` belongs to, or None when both ends lie in the parent namespace.
        near, far: names of the two devices.
        near_switch: the bridge that `near` is a port of, for an uplink.
        far_switch: the bridge that `far` is a port of.
        rate_bps: bits per second each way; None: not shaped.
        delay_s, loss: what happens to frames on their way from near to far. The way back has neither.
    """

    host: int | None
    near: str
    far: str
    near_switch: str | None
    far_switch: str
    rate_bps: int | None
    delay_s: float
    loss: float

    @property
    def plain(self) -> bool:
        """True when the kernel's veth and token bucket are all that the link needs."""
        return self.delay_s == 0 and self.loss == 0


def plan_links(spec: LabSpec) -> tuple[Link, ...]:
    """All links of a lab: one per host in order, then one per island."""
    rates = spec.link_bps
    hosts = [
        Link(host, DEVICE, f"h{host}", None, f"sw{island}", rates[host], spec.delay_s, spec.loss)
        for host, island in enumerate(spec.island_of)
    ]
    uplinks = [
        Link(None, f"up{island}", f"core{island}", f"sw{island}", CORE, spec.between_bps, spec.between_delay_s, 0.0)
        for island in range(len(spec.islands))
    ]
    return (*hosts, *uplinks)


def plan_switches(spec: LabSpec) -> tuple[str, ...]:
    """Names of all bridges."""
    islands = tuple(f"sw{island}" for island in range(max(1, len(spec.islands))))
    return (*islands, CORE) if spec.islands else islands


def host_name(host: int) -> str:
    """The name that the host's own `hostname` says, and that the other hosts can look up."""
    return f"h{host}"


def host_address(host: int) -> str:
    """IPv4 address of a host inside the lab."""
    return f"10.77.0.{host + 1}"
