"""One process's part in a run: its place, its peers, its device, its folder. Opened once, closed once."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from trainingkit.cluster.allocator import keep_freed_memory
from trainingkit.cluster.machine import has_fast_bf16
from trainingkit.cluster.meeting import Meeting, join, lane, leave
from trainingkit.cluster.place import Place, find_place
from trainingkit.cluster.threads import threads_per_worker
from trainingkit.core import decisions, outcome, records
from trainingkit.core.errors import ConfigError, RunFolderError
from trainingkit.core.folderlock import LET_GO_S
from trainingkit.core.logging import capture_output, to_file
from trainingkit.core.runfolder import RunFolder, new_run_path
from trainingkit.precision.compute import choose_compute
from trainingkit.recovery.journal import slots
from trainingkit.trainer.recipe import KitConfig

RUNS = Path("runs")
_OPENED = itertools.count()
"""Sessions of this process: a script may open one after the other, and a restarted one opens the same again."""


@dataclass(frozen=True)
class Session:
    """Where this rank stands and what it may use.

    Args:
        group: the group of the training step's own collectives; None in a single process.
        control_group, snapshot_group: Gloo groups of their own, so that each keeps its own order.
        compute: "bf16" or "fp32".
        attempt: 1 for a fresh run, one more each time it is resumed.
        on_close: what else ends with the session.
    """

    place: Place
    group: dist.ProcessGroup | None
    control_group: dist.ProcessGroup | None
    snapshot_group: dist.ProcessGroup | None
    device: torch.device
    compute: str
    threads: int
    run: RunFolder
    attempt: int
    on_close: Callable[[], None] = lambda: None

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self.place.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.place.world_size

    def close(self) -> None:
        """Leave the process groups, the log file, and the run folder to others."""
        leave()
        self.on_close()


def open_session(
    config: KitConfig, *, run: RunFolder | None = None, capture: bool = False, joins: bool = False
) -> Session:
    """Join the peers and set this process up.

    Args:
        run: the run folder, if it is known; else `run.folder` of the config, or a new one below `runs/`.
        capture: send stderr, and on all ranks but 0 stdout, to the log file.
        joins: this process's job holds the run folder already; else rank 0 takes it for the session's life.

    Raises:
        ClusterError, ConfigError, RunFolderError: with what to do about it.
    """
    place = find_place()
    device = choose_device(config.run.device, place.local_rank)
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    meeting = join(place, join_s=config.sync.join_s, timeout_s=config.sync.timeout_s, backend=backend)
    number = next(_OPENED)
    folder = run or RunFolder(_agreed_path(meeting, number, config, place))
    folder.create()
    with contextlib.ExitStack() as closing:
        _hold(folder, meeting, place, closing, joins=joins, join_s=config.sync.join_s)
        _forget_outcomes(folder, place)
        closing.callback(to_file(folder.log(place.rank)))
        session = _set_up(config, folder, meeting, place, device, capture=capture)
        return dataclasses.replace(session, on_close=closing.pop_all().close)


def _set_up(
    config: KitConfig, folder: RunFolder, meeting: Meeting | None, place: Place, device: torch.device, *, capture: bool
) -> Session:
    """What a process of this job computes with, and its lanes. All ranks call it."""
    group, timeout_s = meeting.group if meeting else None, config.sync.timeout_s
    if capture:
        capture_output(folder.log(place.rank), keep_stdout=place.rank == 0)
    threads = threads_per_worker(place.local_world_size, wanted=config.run.threads)
    torch.set_num_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    compute, why = choose_compute(config.precision, device, cpu_has_bf16=has_fast_bf16())
    attempt = int(_shared(meeting, "attempt", str(_next_attempt(folder))))
    if place.rank == 0:
        shared = f"{place.local_world_size} workers share this host's cores"
        cores = "set in the recipe" if config.run.threads else shared
        with folder.written():
            decisions.record(folder.decisions, step=0, choice="threads per worker", value=threads, reason=cores)
            decisions.record(folder.decisions, step=0, choice="compute type", value=compute, reason=why)
    return Session(
        place=place,
        group=group,
        control_group=lane(group, timeout_s=timeout_s),
        snapshot_group=lane(group, timeout_s=timeout_s),
        device=device,
        compute=compute,
        threads=threads,
        run=folder,
        attempt=attempt,
    )


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """'auto' takes CUDA where there is one.

    Raises:
        ConfigError: CUDA is wanted and there are fewer devices than local ranks.
    """
    count = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and count == 0):
        return torch.device("cpu")
    if local_rank >= count:
        raise ConfigError(
            "There are fewer CUDA devices than workers on this host.",
            field="run.device",
            found=f"{count} devices, local rank {local_rank}",
            expected="one device per worker",
            next_step="Use fewer workers, or run.device = 'cpu'.",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _agreed_path(meeting: Meeting | None, number: int, config: KitConfig, place: Place) -> Path:
    """The run folder, the same on all ranks, and after a restart the same as before.

    Raises:
        ConfigError: after a restart nobody would know what the first start had chosen.
    """
    if config.run.folder is None and place.max_restarts > 0 and not place.agent_store:
        raise ConfigError(
            "A job that may be restarted needs a run folder: its launcher keeps no store to agree on one.",
            field="run.folder",
            found="nothing",
            expected="a folder",
            next_step="Add it, for example with --set run.folder=runs/NAME.",
        )
    path = Path(config.run.folder or new_run_path(RUNS, config.name)).absolute()
    return Path(meeting.keep(f"run/{number}", str(path))) if meeting else path


def _hold(
    folder: RunFolder,
    meeting: Meeting | None,
    place: Place,
    closing: contextlib.ExitStack,
    *,
    joins: bool,
    join_s: float,
) -> None:
    """Rank 0 takes the folder until `closing` is closed; where it cannot, all ranks say so.

    It waits a little for what a killed job has left. After a restart that may be the rank 0 of before, on a host that
    is gone, whose lock a file server keeps for a while: it waits half as long as ranks wait for each other (`join_s`).

    Raises:
        RunFolderError: another job is at work in it.
    """
    refusal: RunFolderError | None = None
    if place.rank == 0:
        wait_s = join_s / 2 if place.max_restarts else min(LET_GO_S, join_s / 2)
        try:
            closing.enter_context(folder.locked(wait_s=wait_s, joins=joins))
        except RunFolderError as error:
            refusal = error
    problem = _shared(meeting, "refusal", refusal.problem if refusal else "")
    if problem:
        if meeting is not None:
            dist.all_reduce(torch.zeros(1), group=meeting.group)
        leave()
        raise refusal or RunFolderError(
            problem,
            field="run.folder",
            found=str(folder.root),
            expected="a folder that no running job uses",
            next_step="See what rank 0 says.",
        )


def _forget_outcomes(folder: RunFolder, place: Place) -> None:
    """An earlier attempt's do not count: this rank's own, and for rank 0 those of ranks that are no more."""
    folder.outcome(place.rank).unlink(missing_ok=True)
    for rank in outcome.read(folder) if place.rank == 0 else ():
        if rank >= place.world_size:
            folder.outcome(rank).unlink(missing_ok=True)


def _shared(meeting: Meeting | None, key: str, value: str) -> str:
    return meeting.share(key, value) if meeting else value


def _next_attempt(folder: RunFolder) -> int:
    """One that nothing in the folder knows. A host's death may take the last records along and leave their journal."""
    found, _ = records.read_records(folder.metrics(0))
    begun = [record.attempt for record in found if isinstance(record, records.StartRecord)]
    return 1 + max([*begun, *(slot.attempt for slot in slots(folder.journal))], default=0)
