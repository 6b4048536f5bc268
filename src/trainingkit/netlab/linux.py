"""The system calls that Python 3.11 does not offer: unshare, setns, mount, sethostname. Each raises OSError."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give this process new namespaces; a new PID namespace begins with its next child."""
    _checked(_libc().unshare(flags), "unshare")


def setns(handle: int) -> None:
    """Enter the namespace that an open /proc/PID/ns/* file stands for."""
    _checked(_libc().setns(handle, 0), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    """mount(2) without options."""
    arguments = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None)
    _checked(_libc().mount(*arguments), f"mount {target}")


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _checked(_libc().umount2(target.encode(), flags), f"umount {target}")


def set_host_name(name: str) -> None:
    """Name of this process's UTS namespace."""
    _checked(_libc().sethostname(name.encode(), len(name)), "sethostname")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _checked(_libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")


def open_namespace(kind: str) -> int:
    """A file that stands for this process's namespace: "net", "uts"."""
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def inside(handle: int) -> Iterator[None]:
    """Be in another network namespace for a moment. For a process with one thread."""
    home = open_namespace("net")
    try:
        setns(handle)
        yield
    finally:
        setns(home)
        os.close(home)


def map_to_root(uid: int, gid: int) -> None:
    """In a fresh user namespace: be root in it, and `uid`:`gid` outside."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
