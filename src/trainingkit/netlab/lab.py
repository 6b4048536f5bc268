"""The lab itself, as its creator sees it."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.netlab import wire
from trainingkit.netlab.job import JobResult, JobSpec, LineSink, run_job
from trainingkit.netlab.plan import host_address, host_name, plan_links
from trainingkit.netlab.process import HostProcess
from trainingkit.netlab.rates import format_rate, parse_rate
from trainingkit.netlab.relay import RELAY_BPS, RELAY_LOSSY_BPS, RelayCounters
from trainingkit.netlab.spec import LabSpec
from trainingkit.netlab.stdio import open_streams

CLOSE_S = 10.0
FIRST_PORT = 29500


@dataclass(frozen=True)
class Counters:
    """What a host's interface has counted since the lab began, Ethernet headers included.

    TCP hands segments of up to 64 kB to the interface, which counts their headers once; the wire's shaping counts them
    for each frame.

    Args:
        at_s: when they were read, by `time.monotonic`'s clock, so that two readings give a rate.
    """

    at_s: float

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    sent_dropped: int
    received_dropped: int


class Lab:
    """Hosts and links that exist while the `with` block lasts, or until this process dies in whatever way.

    Example:
        with Lab(LabSpec(hosts=4, link="100mbit", delay_s=0.02)) as lab:
            server = lab.run(0, ["iperf3", "-s"])
            lab.launch([sys.executable, "train.py"])

    Raises:
        ClusterError: this machine cannot make one; says why and what to do.
    """

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self._lock = threading.Lock()
        self._port = FIRST_PORT
        self._end, theirs = wire.socket_pair()
        with theirs:
            self._holder = _start_holder(theirs.fileno())
        try:
            started = self._ask(dataclasses.asdict(spec))
        except BaseException:
            self.close()
            raise
        self.netem: bool = started["netem"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every program of the lab and take everything away. Returns when that is done; may be called twice."""
        self._end.close()
        try:
            self._holder.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()

    @property
    def hosts(self) -> range:
        """The hosts' numbers."""
        return range(self.spec.hosts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as true as the spec asks, one sentence each. For links that our own relay delays."""
        if self.netem:
            return ()
        return tuple(_relay_note(link.far, link.rate_bps, link.loss) for link in plan_links(self.spec) if _hard(link))

    def name(self, host: int) -> str:
        """The host's name; the other hosts can look it up."""
        return host_name(self._checked(host))

    def address(self, host: int) -> str:
        """The host's IPv4 address."""
        return host_address(self._checked(host))

    def run(
        self,
        host: int,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> HostProcess:
        """Start a program on a host.

        Args:
            env: its whole environment; default: ours.
            stdin, stdout, stderr: as for `subprocess.Popen` (a file, a descriptor, PIPE, DEVNULL, for stderr STDOUT).
                By default it reads nothing and writes to our own stdout and stderr.

        Raises:
            ClusterError: the program cannot be started, or the lab is gone.
        """
        request = {
            "do": "run",
            "host": self._checked(host),
            "argv": list(argv),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
        }
        with open_streams(stdin, stdout, stderr) as streams:
            answer = self._ask(request, streams.theirs)
            status, pipes = streams.keep()
        return HostProcess(host, answer["pid"], status, self._signal, pipes)

    def wait(self, processes: Iterable[HostProcess], timeout_s: float | None = None) -> list[int]:
        """Wait for all of them, `timeout_s` seconds together. Returns their codes. Raises ClusterError on time-out."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        return [each.wait(None if until is None else max(0.0, until - time.monotonic())) for each in processes]

    def launch(
        self,
        argv: Sequence[str],
        *,
        world_size: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        deadline_s: float | None = None,
        grace_s: float = 5.0,
        on_line: LineSink | None = None,
        check: bool = True,
    ) -> JobResult:
        """Run one program as the ranks of one job, rank r on host r, with torchrun's environment.

        Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT (a new one for each
        launch), GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, TP_SOCKET_IFNAME, and OMP_NUM_THREADS where nobody set it.

        Args:
            world_size: ranks; default: one for each host.
            env: variables over our own environment.
            deadline_s: seconds after which all ranks are killed.
            grace_s: seconds between SIGTERM and SIGKILL for the others when a rank has failed.
            on_line: called with (rank, "stdout" or "stderr", line) as lines come.
            check: raise when a rank fails; else say so in the result.

        Raises:
            ClusterError: the first rank that failed, with its stderr; or the deadline passed.
        """
        ranks = self.spec.hosts if world_size is None else world_size
        if not 1 <= ranks <= self.spec.hosts:
            raise ConfigError(
                "A lab runs at most one rank on each host.",
                field="world_size",
                found=ranks,
                expected=f"1 to {self.spec.hosts}",
                next_step="Make a lab with more hosts, or start fewer ranks.",
            )
        with self._lock:
            self._port += 1
        job = JobSpec(tuple(argv), ranks, self._port, env or {}, cwd, deadline_s, grace_s)
        result = run_job(self, job, on_line)
        if check:
            result.check()
        return result

    def counters(self, host: int) -> Counters:
        """What the host's interface has counted."""
        return Counters(**self._ask({"do": "counters", "host": self._checked(host)}))

    def relay_counters(self) -> dict[str, RelayCounters]:
        """What our own relays did, by the name of the link's far end; empty where the kernel does it all."""
        links = plan_links(self.spec)
        answer = self._ask({"do": "relay"})
        return {links[int(index)].far: RelayCounters(**values) for index, values in answer.items()}

    def set_rate(self, host: int, rate: str) -> None:
        """Change the rate of a host's link, both ways, at once. From or to more than 100 Mbit/s, queues begin empty."""
        self._set_rate([self._checked(host)], parse_rate(rate, field="rate"))

    def set_between(self, rate: str) -> None:
        """Change the rate of all uplinks of islands."""
        uplinks = [index for index, link in enumerate(plan_links(self.spec)) if link.host is None]
        self._set_rate(uplinks, parse_rate(rate, field="rate"))

    def _set_rate(self, links: list[int], rate_bps: int | None) -> None:
        self._ask({"do": "rate", "links": links, "rate_bps": rate_bps})

    def _signal(self, pid: int, number: int, group: bool) -> None:
        self._ask({"do": "signal", "pid": pid, "signal": int(number), "group": group})

    def _checked(self, host: int) -> int:
        if host not in self.hosts:
            raise ConfigError(
                "There is no such host.",
                field="host",
                found=host,
                expected=f"0 to {self.spec.hosts - 1}",
                next_step="Choose one of these, or make a lab with more hosts.",
            )
        return host

    def _ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            try:
                wire.send(self._end, request, files)
                received = wire.receive(self._end)
            except OSError as error:
                raise _lost(error) from error
        if received is None:
            raise _lost(None)
        return wire.unpack(received[0])


def _start_holder(end: int) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "trainingkit.netlab.holder", str(end), str(os.getpid())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        pass_fds=(end,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _hard(link: Any) -> bool:
    most_bps = RELAY_LOSSY_BPS if link.loss else RELAY_BPS
    return not link.plain and (link.rate_bps is None or link.rate_bps > most_bps)


def _relay_note(name: str, rate_bps: int | None, loss: float) -> str:
    most_bps = RELAY_LOSSY_BPS if loss else RELAY_BPS
    return (
        f"Link {name} is to be {format_rate(rate_bps)}, but this kernel has no netem, and our relay, which adds "
        f"delay and loss, carries about {format_rate(most_bps)}."
    )


def _lost(error: OSError | None) -> ClusterError:
    if error is not None and error.errno == errno.EMSGSIZE:
        return ClusterError(
            "The command and its environment are too long.",
            field="argv, env",
            found=error.strerror,
            next_step="Pass long texts in a file, or a smaller env.",
        )
    return ClusterError(
        "The network lab is gone: it was closed, or its holder was killed.",
        field="lab",
        found=None if error is None else error.strerror,
        next_step="Make a new one.",
    )
