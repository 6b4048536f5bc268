"""Nothing of a lab remains: after its end, after an exception, after SIGKILL of its creator at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from netlab_outside import TOKEN, Seen, holders_of, look, machine_state

from ranks import until

pytestmark = pytest.mark.usefixtures("can_lab")
CREATOR = Path(__file__).with_name("netlab_creator.py")
GONE_S = 20.0
HOSTS, PARENT, HOLDERS, PROGRAMS = 3, 1, 2, 3


@contextlib.contextmanager
def creator(how: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that makes a lab, and the token that it and everything below it carries."""
    token = uuid.uuid4().hex
    pipe = subprocess.PIPE
    argv, env = [sys.executable, str(CREATOR), how], {**os.environ, TOKEN: token}
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process, token
        finally:
            process.kill()


def everybody(token: str) -> Seen | None:
    """What is there of a lab, once all of it is there: the creator, holders, programs and, without netem, relays."""
    seen = look(token)
    return seen if len(seen.pids) >= 1 + HOLDERS + HOSTS * PROGRAMS else None


def wait_until_up(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"


def kill_at(moment_s: float) -> bool:
    """SIGKILL the creator so long after its start. Returns whether anything of the lab was there by then."""
    before = machine_state()
    with creator("wait") as (process, token):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(moment_s)
        seen = look(token)
    until(lambda: not look(token).pids, deadline_s=GONE_S, what="the end of every process of the lab")
    assert not holders_of(seen.namespaces)
    assert machine_state() == before
    return bool(seen.namespaces)


def moments(n: int, seed: int) -> list[float]:
    """One random moment in each n-th of the time that a start takes on this machine now, and a third more."""
    begin = time.monotonic()
    with creator("end") as (process, _token):
        wait_until_up(process)
        span_s = 1.33 * (time.monotonic() - begin)
    draw = random.Random(seed)
    return [(part + draw.random()) / n * span_s for part in range(n)]


def test_nothing_remains_after_sigkill_at_random_moments():
    found = [kill_at(moment_s) for moment_s in moments(6, seed=1)]
    assert any(found)


@pytest.mark.slow
def test_nothing_remains_after_sigkill_at_twenty_random_moments():
    found = [kill_at(moment_s) for moment_s in moments(20, seed=2)]
    assert any(found)


@pytest.mark.parametrize("how", ["wait", "fork"])
def test_nothing_remains_after_sigkill_of_a_lab_that_runs(how: str):
    """Also when a forked child keeps the creator's files open and lives on."""
    before = machine_state()
    with creator(how) as (process, token):
        wait_until_up(process)
        seen = until(lambda: everybody(token), deadline_s=GONE_S, what="the start of every program")
        process.kill()
        spared = 1 if how == "fork" else 0
        until(lambda: len(look(token).pids) <= spared, deadline_s=GONE_S, what="the end of all but the fork")
    until(lambda: not look(token).pids, deadline_s=GONE_S, what="the end of every process of the lab")
    assert seen is not None
    assert len(seen.namespaces) == HOSTS + PARENT
    assert not holders_of(seen.namespaces)
    assert machine_state() == before


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("end", 0)])
def test_nothing_remains_after_an_exception_and_after_the_end(how: str, code: int):
    before = machine_state()
    with creator(how) as (process, token):
        _out, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert (b"a bug in the bench" in errors) == (how == "raise")
    assert not look(token).pids
    assert machine_state() == before


@pytest.mark.parametrize("place", ["outer", "inner"])
def test_nothing_remains_when_the_holder_is_killed(place: str):
    with creator("wait") as (process, token):
        wait_until_up(process)
        holders = sorted(pid for pid in look(token).pids if is_holder(pid))
        os.kill(holders[0 if place == "outer" else 1], 9)
        until(lambda: look(token).pids == {process.pid}, deadline_s=GONE_S, what="the end of all but the creator")


def is_holder(pid: int) -> bool:
    return b"trainingkit.netlab.holder" in Path(f"/proc/{pid}/cmdline").read_bytes()
