"""Makes a lab with relays and programs, says so, and then waits to be killed, raises, or ends as it is told."""

from __future__ import annotations

import os
import sys
import time

from trainingkit.netlab import Lab, LabSpec


def main(how: str) -> None:
    """`how`: "wait", "raise", "end", or "fork": wait, with a child that holds copies of all our files."""
    with Lab(LabSpec(hosts=3, islands=(2, 1), link="100mbit", between="50mbit", delay_s=0.001)) as lab:
        for host in lab.hosts:
            lab.run(host, ["sh", "-c", "setsid sleep 300 & sleep 300"])
        if how == "fork" and os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        sys.stdout.write("up\n")
        sys.stdout.flush()
        if how == "raise":
            raise ValueError("a bug in the bench")
        while how in ("wait", "fork"):
            time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
