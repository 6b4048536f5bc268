"""Scripts that hosts run in tests: numbered datagrams and how many came; so many bytes over TCP."""

import json
import socket
import sys
import time

PORT = 6000
PAUSE_S = 0.0001
PATIENCE_S = 0.05
SAY_TIMES = 50


def count() -> int:
    """Answer hellos, count different numbers, until the end is said."""
    seen = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        own.bind(("", PORT))
        while True:
            data, peer = own.recvfrom(100)
            if data == b"end":
                return len(seen)
            if data == b"hello":
                own.sendto(b"hello", peer)
            else:
                seen.add(int(data))


def send(address: str, n: int) -> None:
    """Say hello until it is answered, then send the numbers, then the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(PATIENCE_S)
        own.connect((address, PORT))
        while True:
            try:
                own.send(b"hello")
                own.recv(100)
                break
            except OSError:
                time.sleep(PAUSE_S)
        for number in range(n):
            own.send(b"%d" % number)
            time.sleep(PAUSE_S)
        for _ in range(SAY_TIMES):
            try:
                own.send(b"end")
            except ConnectionRefusedError:
                return


def take() -> int:
    """Count the bytes of one TCP connection."""
    with socket.create_server(("", PORT)) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        connection, _ = server.accept()
    n_bytes = 0
    with connection:
        while data := connection.recv(1 << 18):
            n_bytes += len(data)
    return n_bytes


def give(address: str, n: int) -> None:
    """Send so many bytes."""
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(bytes(n))


if __name__ == "__main__":
    what = sys.argv[1]
    if what in ("count", "take"):
        sys.stdout.write(json.dumps(count() if what == "count" else take()) + "\n")
    else:
        (send if what == "send" else give)(sys.argv[2], int(sys.argv[3]))
