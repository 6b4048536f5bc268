"""Bytes are counted where they leave: our count against the kernel's counters, framing included, and the promise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("wire_run.py")
INT4, TOPK = "all|int4(block=64)", "topk(density=0.05, chunk=4096)|int4"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One run of `wire_run` in a network namespace of its own, where nothing else sends."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root, unshare and ip")
    store = tmp_path_factory.mktemp("wire") / "store"
    inside = 'ip link set lo up && exec "$0" "$@"'
    command = ["unshare", "--net", "sh", "-c", inside, sys.executable, str(PROGRAM), str(store)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_model_is_the_one_of_the_promise(measured: dict[str, dict[str, Any]]) -> None:
    assert 10.6e6 < measured["none"]["parameters"] < 11e6
    assert measured[INT4]["buckets"] > 10, "buckets of about 2 MB"


@pytest.mark.parametrize("codec", [INT4, TOPK])
def test_counted_is_foretold(measured: dict[str, dict[str, Any]], codec: str) -> None:
    assert measured[codec]["counted"] == measured[codec]["formula"]


@pytest.mark.parametrize("codec", ["none", INT4, TOPK])
def test_counted_is_what_the_interface_counts(measured: dict[str, dict[str, Any]], codec: str) -> None:
    found = measured[codec]
    assert found["counted"] <= found["interface"] <= 1.05 * found["counted"], found


@pytest.mark.parametrize(("codec", "share"), [(INT4, 7), (TOPK, 20)])
def test_bytes_against_plain_ddp_by_the_interface(measured: dict[str, dict[str, Any]], codec: str, share: int) -> None:
    assert share * measured[codec]["interface"] <= measured["none"]["interface"]
