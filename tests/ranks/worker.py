"""One rank: takes jobs from its connection, runs each inside a fresh Gloo group, and answers.

Answers: ("ok", pickled result), after which it waits for "release" before the group goes, so that no peer loses its
partner too early; or ("failed", traceback, time, secondary), after which the process ends, which peers notice at once.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import importlib
import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore

from ranks.context import Context
from ranks.job import STACKS, Job

PREFIX = "default"
_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "gloo/transport",
)


def serve(connection_fd: int, log_fd: int) -> None:
    """Take jobs until the connection closes. Stdout and stderr go to the log."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    torch.set_num_threads(1)
    connection = Connection(connection_fd)
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        try:
            _perform(job, connection)
        except BaseException as error:
            _flush()
            secondary = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _LOST_PEER)
            connection.send(("failed", traceback.format_exc(), time.monotonic(), secondary))
            return


def _perform(job: Job, connection: Connection) -> None:
    sys.path[:] = job.path
    with _own_state(job), _default_group(job) as context:
        module, name = job.call
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        result = pickle.dumps(function(context, *pickle.loads(job.args)))
        _flush()
        connection.send(("ok", result))
        assert connection.recv() == "release"


@contextlib.contextmanager
def _own_state(job: Job) -> Iterator[None]:
    """Environment, folder, seeds and signal handlers of one run; put back after it."""
    environment, folder = dict(os.environ), Path.cwd()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    os.environ.update(job.env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed(0)
    torch.manual_seed(0)
    with open(job.stacks, "w") as stacks:
        faulthandler.register(STACKS, file=stacks, all_threads=True)
        try:
            yield
        finally:
            faulthandler.unregister(STACKS)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)


@contextlib.contextmanager
def _default_group(job: Job) -> Iterator[Context]:
    path = job.folder / "store"
    store = FileStore(str(path), job.world_size)
    timeout = datetime.timedelta(seconds=job.timeout_s)
    dist.init_process_group(
        "gloo", store=PrefixStore(PREFIX, store), rank=job.rank, world_size=job.world_size, timeout=timeout
    )
    group = dist.distributed_c10d._get_default_group()
    tmp = job.folder / "tmp"
    yield Context(job.rank, job.world_size, path, PREFIX, store, group, tmp, job.faults)
    if dist.is_initialized():
        dist.destroy_process_group()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
