"""The process that has torch imported and forks workers from there, so that a new worker costs milliseconds.

Run as `python -m ranks.zygote PARENT SOCKET_FD MODULE...`; the modules are imported first. Requests come over a Unix
socket, one packet each: `fork` (with two descriptors: the worker's connection and its log) is answered by the new pid;
`status PID` by the wait status of a worker that has ended. When the socket closes or SIGTERM comes, all workers are
killed and reaped.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
from typing import NoReturn

from ranks.lifeline import die_with_parent


def main() -> None:
    """Serve until the parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    die_with_parent(int(sys.argv[1]), signal.SIGTERM)
    requests = socket.socket(fileno=int(sys.argv[2]))
    workers: set[int] = set()
    try:
        for name in sys.argv[3:]:
            importlib.import_module(name)
        requests.send(b"ready")
        _serve(requests, workers)
    finally:
        _reap(workers)


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def _serve(requests: socket.socket, workers: set[int]) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 64, 2)
        if not message:
            return
        verb, *words = message.decode().split()
        if verb == "fork":
            pid = _fork(requests, *descriptors)
            workers.add(pid)
            requests.send(str(pid).encode())
        else:
            pid = int(words[0])
            status = os.waitpid(pid, 0)[1]
            workers.discard(pid)
            requests.send(str(status).encode())


def _fork(requests: socket.socket, connection: int, log: int) -> int:
    zygote = os.getpid()
    pid = os.fork()
    if pid:
        os.close(connection)
        os.close(log)
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(zygote, signal.SIGKILL)
        requests.close()
        os.setsid()
        from ranks.worker import serve

        serve(connection, log)
        code = 0
    finally:
        os._exit(code)


def _reap(workers: set[int]) -> None:
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in workers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
    os._exit(0)
