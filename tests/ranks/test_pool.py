from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from ranks import Context, DeadlineExpired, Fault, InjectedFault, Pool, RankFailed, until

MARKER = "RANKS_POOL_TEST"


def total(context: Context, factor: float) -> float:
    import torch
    import torch.distributed as dist

    context.at_step(0)
    value = torch.tensor([factor * (context.rank + 1)])
    dist.all_reduce(value, group=context.group)
    return float(value)


def own_state(context: Context) -> tuple[int, str | None, bool, float, int]:
    import torch

    os.chdir(context.tmp)
    os.environ["LEFT_BEHIND"] = "yes"
    left = (context.tmp / "seen").exists()
    (context.tmp / "seen").write_text("x")
    return os.getpid(), os.environ.get("GIVEN"), left, float(torch.rand(())), torch.get_num_threads()


def environment(context: Context) -> tuple[str | None, str | None]:
    return os.environ.get("LEFT_BEHIND"), os.environ.get("GIVEN")


def talk_over_store(context: Context) -> bytes:
    context.store.set(f"from-{context.rank}", str(context.rank))
    return context.store.get(f"from-{(context.rank + 1) % context.world_size}")


def fail_quietly(context: Context) -> None:
    print("a word before the end")
    if context.rank == 1:
        raise ValueError("the real cause")
    total(context, 1.0)


def outlive_a_peer(context: Context) -> str:
    import torch
    import torch.distributed as dist

    context.at_step(3)
    try:
        dist.all_reduce(torch.zeros(1))
    except RuntimeError:
        return "peer lost"
    return "all there"


def stay(context: Context) -> None:
    if context.rank == 0:
        signal.pause()


def leave(context: Context) -> None:
    if context.rank == 1:
        os._exit(7)


def not_picklable(context: Context) -> object:
    return lambda: None


def catch_interrupt(context: Context) -> str:
    try:
        context.at_step(1)
    except KeyboardInterrupt:
        return "interrupted"
    return "ran"


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_all_reduce(pool: Pool, world_size: int) -> None:
    assert pool.run(total, world_size, 2.0) == [world_size * (world_size + 1.0)] * world_size


def test_reuse_is_quick_and_keeps_the_processes(pool: Pool) -> None:
    pool.run(total, 4, 1.0)
    before = set(pool.pids())
    times = []
    for _ in range(5):
        start = time.monotonic()
        pool.run(total, 4, 1.0)
        times.append(time.monotonic() - start)
    assert set(pool.pids()) == before
    assert min(times) < 0.3


def test_runs_do_not_see_each_other(pool: Pool) -> None:
    first = pool.run(own_state, 1, env={"GIVEN": "1"})[0]
    second = pool.run(own_state, 1, env={"GIVEN": "2"})[0]
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("1", "2")
    assert not first[2] and not second[2]
    assert first[3] == second[3]
    assert first[4] == second[4] == 1
    assert pool.run(environment, 1) == [(None, None)]


def test_store_of_the_run(pool: Pool) -> None:
    assert pool.run(talk_over_store, 3) == [b"1", b"2", b"0"]


def test_first_failure_is_shown_and_not_the_connection_error(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(fail_quietly, 3)
    error = caught.value
    assert error.rank == 1
    assert "ValueError: the real cause" in error.traceback
    assert "in fail_quietly" in error.traceback
    lines = str(error).splitlines()
    assert lines[0] == f"rank 1 failed first in {__name__}.fail_quietly:"
    assert "a word before the end" in str(error)
    assert next(iter(error.failures)) == 1
    assert pool.run(total, 3, 1.0) == [6.0] * 3


def test_killed_rank_is_reported_with_its_signal(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(total, 3, 1.0, faults=[Fault(2, 0, "kill")])
    assert caught.value.rank == 2
    assert caught.value.died == {2: signal.SIGKILL}
    assert str(caught.value).startswith("rank 2 was ended by SIGKILL")


def test_survivors_may_return(pool: Pool) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(outlive_a_peer, 2, faults=[Fault(0, 3, "term")])
    assert caught.value.died == {0: signal.SIGTERM}
    assert caught.value.results == {1: "peer lost"}


def test_exit_code_is_reported(pool: Pool) -> None:
    with pytest.raises(RankFailed, match="rank 1 left with exit code 7") as caught:
        pool.run(leave, 2, grace_s=0.2)
    assert caught.value.exited == {1: 7}


def test_injected_raise_names_rank_and_step(pool: Pool) -> None:
    with pytest.raises(RankFailed, match="injected fault on rank 1 at step 0") as caught:
        pool.run(total, 2, 1.0, faults=[Fault(1, 0, "raise")])
    assert InjectedFault.__name__ in caught.value.traceback


def test_interrupt_reaches_the_function(pool: Pool) -> None:
    assert pool.run(catch_interrupt, 2, faults=[Fault(1, 1, "int")]) == ["ran", "interrupted"]


def test_slow_rank_is_slow(pool: Pool) -> None:
    start = time.monotonic()
    pool.run(total, 2, 1.0, faults=[Fault(1, 0, "slow", seconds=0.3)])
    assert time.monotonic() - start >= 0.3


def test_deadline_shows_the_stacks(pool: Pool) -> None:
    with pytest.raises(DeadlineExpired) as caught:
        pool.run(stay, 2, deadline_s=0.5)
    assert set(caught.value.stuck) == {0}
    assert "in stay" in caught.value.stuck[0]
    assert "ranks [0] did not come back within 0.5 s" in str(caught.value)


def test_deadline_tells_a_stopped_rank(pool: Pool) -> None:
    with pytest.raises(DeadlineExpired, match=r"ranks \[1\] were stopped \(SIGSTOP\)") as caught:
        pool.run(total, 2, 1.0, faults=[Fault(1, 0, "stop")], deadline_s=0.7)
    assert "in all_reduce" in caught.value.stuck[0]
    assert pool.run(total, 2, 1.0) == [3.0, 3.0]


def test_a_worker_that_died_while_idle_is_replaced(pool: Pool) -> None:
    pool.run(total, 2, 1.0)
    victim = pool.pids()[0]
    watch = os.pidfd_open(victim)
    os.kill(victim, signal.SIGKILL)
    assert select.select([watch], [], [], 5.0)[0], "the worker did not end"
    os.close(watch)
    assert pool.run(total, 2, 1.0) == [3.0, 3.0]
    assert victim not in pool.pids()


def test_refusals(pool: Pool) -> None:
    with pytest.raises(ValueError, match="define it at module level"):
        pool.run(lambda context: None, 2)
    with pytest.raises(ValueError, match="the pool has 1 to 8 ranks"):
        pool.run(total, 9, 1.0)
    with pytest.raises(RankFailed, match="pickle"):
        pool.run(not_picklable, 1)


INNER = """
    import os, signal
    from pathlib import Path
    import pytest
    from ranks import Fault, Pool

    @pytest.fixture(scope="session")
    def pool():
        pool = Pool(preload=["torch.distributed"])
        yield pool
        pool.close()

    def note(context):
        (Path(os.environ["NOTES"]) / str(os.getpid())).touch()

    def wait(context):
        note(context)
        signal.pause()

    def test_runs(pool):
        pool.run(note, 3)

    def test_waits(pool):
        pool.run(wait, 2)
"""


def _inner_session(folder: Path, test: str) -> subprocess.Popen[bytes]:
    (folder / "test_inner.py").write_text(textwrap.dedent(INNER))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "-k", test]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "NOTES": str(folder), MARKER: str(folder), "TMPDIR": str(folder)}
    with open(folder / "output", "wb") as output:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)


def _left(folder: Path) -> list[int]:
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == str(folder):
                left.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return left


def _workers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


@pytest.mark.parametrize("end", [None, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_a_session(tmp_path: Path, end: signal.Signals | None) -> None:
    session = _inner_session(tmp_path, "test_runs" if end is None else "test_waits")
    try:
        if end is not None:
            until(lambda: len(_workers(tmp_path)) == 2, deadline_s=40, what="the inner workers")
            session.send_signal(end)
        code = session.wait(40)
    finally:
        session.kill()
        session.wait()
    expected = {None: 0, signal.SIGINT: 2, signal.SIGKILL: -signal.SIGKILL}[end]
    assert code == expected, (tmp_path / "output").read_text()
    assert len(_workers(tmp_path)) == (3 if end is None else 2)
    until(lambda: not _left(tmp_path), deadline_s=5, what="the end of all children")
