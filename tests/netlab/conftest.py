"""Labs for tests, where this machine can make them; asked without our own code, so that a bug of ours skips nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from trainingkit.netlab import Lab, LabSpec


@pytest.fixture(scope="session")
def can_lab() -> None:
    """Skip where neither root nor a user namespace may make network namespaces."""
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    flags = "-nmp" if os.geteuid() == 0 else "-rnmp"
    tried = subprocess.run(["unshare", flags, "--fork", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.decode().strip()}")


@pytest.fixture(scope="module")
def plain_lab(can_lab: None) -> Iterator[Lab]:
    """Two hosts, nothing shaped."""
    with Lab(LabSpec(hosts=2)) as lab:
        yield lab
