"""The process that a lab hangs on: `python -m trainingkit.netlab.holder SOCKET CREATOR`, started by `Lab`.

It makes a private world (PID, mount, network, UTS and IPC namespaces; in a user namespace where it is not root) and
forks. The child is process 1 of that world: when it ends, for whatever reason, the kernel kills everything in the world
and takes the interfaces away. It ends when its socket closes or when the creator's process is gone, SIGKILL included.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import traceback

from trainingkit.core.errors import ClusterError
from trainingkit.netlab import linux, wire
from trainingkit.netlab.build import build, write_hosts_file
from trainingkit.netlab.serve import Server
from trainingkit.netlab.spec import LabSpec, spec_from_json

WORLD = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC


def main() -> int:
    """Make the world, fork its process 1, wait for its end."""
    end = socket.socket(fileno=int(sys.argv[1]))
    try:
        creator = os.pidfd_open(int(sys.argv[2]))
    except ProcessLookupError:
        return 1
    first = wire.receive(end)
    if first is None:
        return 0
    try:
        leave_the_machine()
    except OSError as error:
        wire.send(end, wire.pack_error(refusal(error)))
        return 1
    pid = os.fork()
    if pid == 0:
        _first_process(spec_from_json(first[0]), end, creator)
    end.close()
    os.waitpid(pid, 0)
    return 0


def leave_the_machine() -> None:
    """New namespaces; as root directly, else (or where root has lost its rights) through a user namespace.

    Raises:
        OSError: neither is allowed.
    """
    if os.geteuid() == 0:
        try:
            linux.unshare(WORLD)
            return
        except PermissionError:
            pass
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(WORLD | linux.CLONE_NEWUSER)
    linux.map_to_root(uid, gid)


def refusal(error: OSError) -> ClusterError:
    """Why there can be no lab here, for a person."""
    ways = {
        errno.ENOSPC: "raise the limits: sysctl user.max_user_namespaces=10000 user.max_net_namespaces=10000",
        errno.EPERM: "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
        errno.EACCES: "run as root, or let AppArmor allow it (sysctl kernel.apparmor_restrict_unprivileged_userns=0)",
    }
    return ClusterError(
        "A network lab needs namespaces of its own, and the kernel refused them.",
        field="namespaces",
        found=f"user {os.geteuid()}: {error.strerror}",
        expected="root, or a user who may make user namespaces (`unshare -rnm true` works)",
        next_step=f"Try: {ways.get(error.errno or 0, ways[errno.EPERM])}. In a container: add CAP_SYS_ADMIN.",
    )


def _first_process(spec: LabSpec, end: socket.socket, creator: int) -> None:
    """Process 1: build, serve, end. Its death takes the world with it."""
    try:
        linux.die_with_parent()
        _serve(spec, end, creator)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _serve(spec: LabSpec, end: socket.socket, creator: int) -> None:
    try:
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", "/proc", "proc")
        write_hosts_file(spec)
        network = build(spec)
    except OSError as error:
        wire.send(end, wire.pack_error(refusal(error)))
    except ClusterError as error:
        wire.send(end, wire.pack_error(error))
    else:
        wire.send(end, {"netem": network.netem})
        Server(network, end, creator).run()


if __name__ == "__main__":
    sys.exit(main())
