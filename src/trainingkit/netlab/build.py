"""Making a lab's hosts, switches and links. Runs in the holder, in the parent namespace, as (mapped) root.

`ip` and `tc` are started once for each host and once for the parent, in their batch modes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import subprocess
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainingkit.core.errors import ClusterError
from trainingkit.netlab import linux, shaping
from trainingkit.netlab.plan import DEVICE, PREFIX_LENGTH, Link, host_address, host_name, plan_links, plan_switches
from trainingkit.netlab.relay import FRAME_BYTES, MEMORY_BYTES, SEGMENT_BYTES, Relay, run_relay
from trainingkit.netlab.spec import LabSpec
from trainingkit.netlab.tap import TUN_DEVICE, open_tap

RELAY_NICE = -15
"""A relay goes first where the process may say so (real root), or its delay is as good as the scheduler."""


@dataclass(frozen=True)
class HostSpace:
    """Open files of one host's network and UTS namespaces."""

    net: int
    uts: int

    def enter(self) -> None:
        """Move this process into the host."""
        linux.setns(self.net)
        linux.setns(self.uts)


@dataclass(frozen=True)
class RelayProcess:
    """A relay that runs: its process, and the memory with its counters."""

    pid: int
    memory: mmap.mmap


@dataclass(frozen=True)
class Network:
    """A lab that is built.

    Args:
        netem: the kernel delays and loses; else `relays` do, by index of the link.
    """

    spec: LabSpec
    links: tuple[Link, ...]
    hosts: tuple[HostSpace, ...]
    netem: bool
    relays: dict[int, RelayProcess]

    def round_trip_s(self) -> float:
        """The longest round trip that the spec adds."""
        return 2 * (self.spec.delay_s + self.spec.between_delay_s)


def build(spec: LabSpec) -> Network:
    """Make everything. Raises ClusterError: the kernel or iproute2 refused something."""
    links = plan_links(spec)
    hosts = tuple(_make_host(host) for host in range(spec.hosts))
    netem = any(not link.plain for link in links) and has_netem()
    taps = {index: _open_taps(link, hosts) for index, link in enumerate(links) if not (link.plain or netem)}
    for index, link in enumerate(links):
        if link.host is not None:
            _batch("ip", _host_lines(link, made=index in taps), hosts[link.host])
    _batch("ip", _parent_lines(spec, links, made=taps), None)
    network = Network(spec, links, hosts, netem, {})
    for link in links:
        shape_link(network, link, link.rate_bps, first=True)
    for index, files in taps.items():
        network.relays[index] = _start_relay(links[index], files, seed=spec.seed + index)
    return network


def shape_link(network: Network, link: Link, rate_bps: int | None, *, first: bool = False) -> None:
    """Set the rate of both directions of a link. `first`: its devices have no queueing discipline yet."""
    space = None if link.host is None else network.hosts[link.host]
    netem = network.netem and not link.plain
    near = shaping.impair(link.near, delay_s=link.delay_s, loss=link.loss) if netem and first else []
    parent = shaping.NETEM_PARENT if netem else "root"
    if rate_bps is not None:
        frames = shaping.SWITCH_FRAMES if link.host is None else shaping.HOST_FRAMES
        trip_s = network.round_trip_s()
        near += shaping.shape(link.near, rate_bps, round_trip_s=trip_s, frames=frames, parent=parent)
        far = shaping.shape(link.far, rate_bps, round_trip_s=trip_s, frames=shaping.SWITCH_FRAMES)
    elif first:
        far = []
    else:
        near, far = shaping.unshape(link.near, parent=parent), shaping.unshape(link.far)
    _batch("tc", near, space)
    _batch("tc", far, None)


def has_netem() -> bool:
    """Whether this kernel has netem: try it on the loopback device of the parent namespace."""
    lines = ["qdisc add dev lo root netem delay 1ms", "qdisc del dev lo root"]
    return _try_batch("tc", lines, None).returncode == 0


def write_hosts_file(spec: LabSpec) -> None:
    """Let the hosts look each other up by name: a private file is mounted over /etc/hosts, which stays untouched.

    The file lives in a small file system of its own that nobody else can reach.
    """
    if not Path("/etc/hosts").exists():
        return
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{host_address(host)} {host_name(host)}" for host in range(spec.hosts)]
    linux.mount("tmpfs", "/tmp", "tmpfs")
    Path("/tmp/hosts").write_text("\n".join(lines) + "\n")
    Path("/tmp/hosts").chmod(0o644)
    linux.mount("/tmp/hosts", "/etc/hosts", flags=linux.MS_BIND)
    linux.unmount("/tmp", linux.MNT_DETACH)


def _make_host(host: int) -> HostSpace:
    home_net, home_uts = linux.open_namespace("net"), linux.open_namespace("uts")
    try:
        linux.unshare(linux.CLONE_NEWNET | linux.CLONE_NEWUTS)
        linux.set_host_name(host_name(host))
        return HostSpace(linux.open_namespace("net"), linux.open_namespace("uts"))
    finally:
        linux.setns(home_net)
        linux.setns(home_uts)
        os.close(home_net)
        os.close(home_uts)


def _host_lines(link: Link, *, made: bool) -> list[str]:
    """The host's side of its link. netem must see single frames to lose single frames."""
    assert link.host is not None
    cable = [] if made else [f"link add {DEVICE} type veth peer name {link.far} netns {os.getpid()}"]
    if link.loss and not made:
        cable.append(f"link set {DEVICE} gso_max_segs 1")
    return [
        "link set lo up",
        *cable,
        *_up(DEVICE),
        f"address add {host_address(link.host)}/{PREFIX_LENGTH} dev {DEVICE}",
    ]


def _parent_lines(spec: LabSpec, links: Sequence[Link], *, made: dict[int, tuple[int, int]]) -> list[str]:
    lines = ["link set lo up"]
    for switch in plan_switches(spec):
        lines += [f"link add {switch} type bridge forward_delay 0 mcast_snooping 0", *_up(switch)]
    for index, link in enumerate(links):
        if link.host is None and index not in made:
            lines.append(f"link add {link.near} type veth peer name {link.far}")
        if link.near_switch is not None:
            lines += [f"link set {link.near} master {link.near_switch}", *_up(link.near)]
        lines += [f"link set {link.far} master {link.far_switch}", *_up(link.far)]
    return lines


def _up(device: str) -> tuple[str, str]:
    """Bring a device up without an IPv6 address of its own making, whose chatter would be counted."""
    return f"link set {device} addrgenmode none", f"link set {device} up"


def _batch(program: str, lines: Sequence[str], space: HostSpace | None) -> None:
    """Run the lines in a host, or in the parent namespace. Raises ClusterError with what the program says."""
    if not lines:
        return
    done = _try_batch(program, lines, space)
    if done.returncode != 0:
        raise ClusterError(
            f"The kernel or `{program}` refused a part of the network lab.",
            field=program,
            found=done.stderr.decode(errors="replace").strip(),
            expected="a kernel with veth, bridge and the tbf queueing discipline",
            next_step="Load these modules, for example: modprobe -a veth bridge sch_tbf ; in a container, on its host.",
        )


def _try_batch(program: str, lines: Sequence[str], space: HostSpace | None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [program, "-batch", "-"],
            input=("\n".join(lines) + "\n").encode(),
            capture_output=True,
            check=False,
            preexec_fn=space.enter if space else None,
        )
    except FileNotFoundError as error:
        raise ClusterError(
            f"A network lab needs the program `{program}`.",
            field="PATH",
            found="no such program",
            expected="iproute2",
            next_step="Install it, for example: apt install iproute2",
        ) from error


def _open_taps(link: Link, hosts: Sequence[HostSpace]) -> tuple[int, int]:
    segments = link.loss == 0
    try:
        if link.host is None:
            return open_tap(link.near, segments=segments), open_tap(link.far, segments=segments)
        with linux.inside(hosts[link.host].net):
            near = open_tap(link.near, segments=segments)
        return near, open_tap(link.far, segments=segments)
    except OSError as error:
        raise ClusterError(
            "This kernel has no netem, and our own relay, which adds delay and loss instead, needs TAP devices.",
            field="delay_s" if link.delay_s else "loss",
            found=f"{TUN_DEVICE}: {error.strerror}",
            expected="a TAP device that may be opened",
            next_step="Load the tun module, or make a lab without delay and loss.",
        ) from error


def _start_relay(link: Link, files: tuple[int, int], *, seed: int) -> RelayProcess:
    memory = mmap.mmap(-1, MEMORY_BYTES)
    pid = os.fork()
    if pid:
        for file in files:
            os.close(file)
        return RelayProcess(pid, memory)
    try:
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, RELAY_NICE)
        frame_bytes = FRAME_BYTES if link.loss else SEGMENT_BYTES
        relay = Relay(*files, link.delay_s, link.loss, random.Random(seed), frame_bytes)
        run_relay(relay, memory)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
