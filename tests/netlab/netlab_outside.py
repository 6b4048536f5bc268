"""What the machine sees of a lab: processes that carry a token in their environment, and their network namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOKEN = "NETLAB_TEST_TOKEN"


@dataclass(frozen=True)
class Seen:
    """Processes with the token, and network namespaces that they are in, other than the machine's own."""

    pids: frozenset[int]
    namespaces: frozenset[str]


def look(token: str) -> Seen:
    """Processes that have the token in their environment; killed ones that nobody has reaped yet have none."""
    wanted = f"{TOKEN}={token}".encode()
    pids: set[int] = set()
    spaces: set[str] = set()
    for folder in _processes():
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                pids.add(int(folder.name))
                spaces.add(str((folder / "ns/net").readlink()))
    return Seen(frozenset(pids), frozenset(spaces - {own_namespace()}))


def own_namespace() -> str:
    """The network namespace of this process."""
    return str(Path("/proc/self/ns/net").readlink())


def holders_of(namespaces: frozenset[str]) -> set[int]:
    """Processes of whatever kind that are in one of the namespaces, or hold one open."""
    found: set[int] = set()
    for folder in _processes():
        with contextlib.suppress(OSError):
            links = [folder / "ns/net", *(folder / "fd").iterdir()]
            if any(_target(link) in namespaces for link in links):
                found.add(int(folder.name))
    return found


def machine_state() -> tuple[list[str], str, str, str]:
    """What a lab must not change: interfaces, named namespaces, mounts, /etc/hosts."""
    interfaces = sorted(os.listdir("/sys/class/net"))  # noqa: PTH208 - names only
    named = subprocess.run(["ip", "netns", "list"], capture_output=True, check=True, text=True).stdout
    return interfaces, named, Path("/proc/self/mounts").read_text(), Path("/etc/hosts").read_text()


def _target(link: Path) -> str | None:
    with contextlib.suppress(OSError):
        return str(link.readlink())
    return None


def _processes() -> Iterator[Path]:
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())
