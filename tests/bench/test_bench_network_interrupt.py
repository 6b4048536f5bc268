"""Ctrl-C while the network bench runs: the lab and all in it end at once, not at the job's deadline."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from trainingkit.bench.network.run import WORKER, Glance, run
from trainingkit.bench.network.spec import NetworkSpec

END_S = 12.0
SPEC = NetworkSpec(hosts=2, scale="tiny", contenders=["plain"], rounds=1000, minutes=1.5, link="50mbit")
"""Left alone it would take two minutes."""


@pytest.mark.skipif(os.geteuid() != 0, reason="a lab of this test needs root")
def test_an_interrupt_ends_the_lab_at_once() -> None:
    interrupted_s: list[float] = []

    def interrupt(_glance: Glance) -> None:
        interrupted_s.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SPEC, command="", show=interrupt)
    assert len(interrupted_s) == 1
    assert time.monotonic() - interrupted_s[0] < END_S
    assert not [child for child in psutil.Process().children(recursive=True) if WORKER in " ".join(child.cmdline())]
