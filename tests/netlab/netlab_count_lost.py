"""Scripts that hosts run in tests: numbered datagrams and how many came; so many bytes over TCP."""

import json
import socket
import sys
import time
from pathlib import Path

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


def give(address: str, n: int) -> int:
    """Send so many bytes; how many segments this host has sent once more until all had arrived."""
    before = sent_again()
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(bytes(n))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    return sent_again() - before


def sent_again() -> int:
    """TCP segments that this host has retransmitted since it began."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:4] == "Tcp:")
    return int(values[names.index("RetransSegs")])


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "send":
        send(arguments[0], int(arguments[1]))
    elif what == "give":
        sys.stdout.write(json.dumps(give(arguments[0], int(arguments[1]))) + "\n")
    else:
        sys.stdout.write(json.dumps(count() if what == "count" else take()) + "\n")
