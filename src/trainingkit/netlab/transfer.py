"""A raw TCP transfer and a ping-pong between two hosts; a script of its own that needs only the standard library.

`transfer.py receive PORT WARM_S SECONDS PINGS` prints "ready", takes one connection, answers pings, then counts what
arrives, after a warm-up, for some seconds, and prints one JSON object. `transfer.py send ADDRESS PORT PINGS` is its
peer.
"""

import json
import socket
import sys
import time
from statistics import median

CHUNK = bytes(1 << 16)
CONNECT_S = 30.0


def receive(port: int, warm_s: float, seconds: float, pings: int) -> dict[str, float]:
    """Serve one peer. Returns payload bytes and seconds of the measured window."""
    with socket.create_server(("", port)) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(pings):
            connection.sendall(connection.recv(1))
        _count(connection, warm_s)
        n_bytes, took_s = _count(connection, seconds)
    return {"n_bytes": n_bytes, "seconds": took_s}


def send(address: str, port: int, pings: int) -> dict[str, float]:
    """Ping, then send until the peer hangs up. Returns the median round trip in seconds."""
    with socket.create_connection((address, port), timeout=CONNECT_S) as connection:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = [_ping(connection) for _ in range(pings)]
        try:
            while True:
                connection.sendall(CHUNK)
        except (BrokenPipeError, ConnectionResetError):
            return {"round_trip_s": median(trips) if trips else 0.0}


def _ping(connection: socket.socket) -> float:
    start = time.perf_counter()
    connection.sendall(b"?")
    connection.recv(1)
    return time.perf_counter() - start


def _count(connection: socket.socket, seconds: float) -> tuple[int, float]:
    """Receive for some seconds, from the first byte on."""
    buffer = bytearray(1 << 18)
    connection.recv_into(buffer, 1)
    start = last = time.perf_counter()
    n_bytes = 0
    while last - start < seconds:
        got = connection.recv_into(buffer)
        if got == 0:
            break
        n_bytes += got
        last = time.perf_counter()
    return n_bytes, last - start


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "receive":
        found = receive(int(rest[0]), float(rest[1]), float(rest[2]), int(rest[3]))
    else:
        found = send(rest[0], int(rest[1]), int(rest[2]))
    sys.stdout.write(json.dumps(found) + "\n")
