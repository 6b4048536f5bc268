from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranks import Fault, until
from ranks.cli import orphans, start_cli
from ranks.faults import from_environment, from_text, to_text

FAULTS = st.builds(
    Fault,
    st.integers(0, 99),
    st.integers(0, 10**6),
    st.sampled_from(["raise", "kill", "term", "int", "stop", "slow"]),
    st.floats(0, 100),
)
PYTHON = (sys.executable, "-c")


@given(st.lists(FAULTS, max_size=4))
def test_faults_survive_the_environment(faults: list[Fault]) -> None:
    assert from_text(to_text(faults)) == faults


def test_fault_text_by_hand() -> None:
    assert from_environment({"RANKS_FAULTS": "1:5:kill"}) == [Fault(1, 5, "kill")]
    assert from_environment({}) == []
    with pytest.raises(ValueError, match="there is no fault kind 'explode'"):
        from_text("0:0:explode")


def test_output_code_and_faults_reach_the_caller(tmp_path: Path) -> None:
    code = "import sys, ranks.faults as f; print(f.from_environment()); print('e', file=sys.stderr); sys.exit(3)"
    done = start_cli([code], cwd=tmp_path, faults=[Fault(1, 2, "kill")], command=PYTHON).wait(20)
    assert (done.code, done.stderr) == (3, "e\n")
    assert done.stdout == f"{[Fault(1, 2, 'kill')]}\n"
    assert orphans(done.marker) == []


def test_deadline_shows_stacks_and_kills_the_whole_run(tmp_path: Path) -> None:
    code = "import signal, subprocess, sys; subprocess.Popen(['sleep', '60']); print('up', flush=True); signal.pause()"
    run = start_cli([code], cwd=tmp_path, command=PYTHON)
    until(lambda: "up" in run.stdout(), deadline_s=20, what="the child")
    assert len(orphans(run.marker)) == 2
    with pytest.raises(TimeoutError, match=r"did not end within 0\.1 s(.|\n)*most recent call first"):
        run.wait(0.1)
    assert orphans(run.marker) == []


def test_an_orphan_is_found(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
    run = start_cli([code], cwd=tmp_path, command=PYTHON)
    assert run.wait(20).code == 0
    assert [process.name() for process in orphans(run.marker)] == ["sleep"]
    run.kill()
    until(lambda: not orphans(run.marker), deadline_s=5, what="the orphan's end")


def test_interrupt_reaches_the_process_group(tmp_path: Path) -> None:
    code = "import signal; print('up', flush=True); signal.pause()"
    run = start_cli([code], cwd=tmp_path, command=PYTHON)
    until(lambda: "up" in run.stdout(), deadline_s=20, what="the start")
    run.interrupt()
    assert run.wait(20).code == -signal.SIGINT
