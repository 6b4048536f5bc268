"""Messages between a lab's creator and its holder: one JSON object a packet over a Unix socket, files beside it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from trainingkit.core.errors import ClusterError, TrainingKitError

PACKET_BYTES = 1 << 22
MOST_FILES = 8
SEND_BUFFER_BYTES = 1 << 21


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep packets apart."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return ends


def send(end: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send one message. Raises OSError; EMSGSIZE when the message is larger than the system's socket buffer."""
    socket.send_fds(end, [json.dumps(message).encode()], files)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and the files that came with it; None when the other side is gone."""
    try:
        data, files, _flags, _address = socket.recv_fds(end, PACKET_BYTES, MOST_FILES)
    except ConnectionResetError:
        return None
    return (json.loads(data), files) if data else None


def pack_error(error: TrainingKitError) -> dict[str, Any]:
    """An error for people as a message."""
    found = None if error.found is None else str(error.found)
    details = {"field": error.field, "found": found, "expected": error.expected, "next_step": error.next_step}
    return {"error": {"problem": error.problem, **details}}


def unpack(message: dict[str, Any]) -> dict[str, Any]:
    """The message itself. Raises ClusterError when it is a packed error."""
    if "error" in message:
        details = dict(message["error"])
        raise ClusterError(details.pop("problem"), **details)
    return message
