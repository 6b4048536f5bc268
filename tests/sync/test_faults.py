"""A rank that dies in an exchange, a stage that fails, a door that is closed: an error at once, never a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from squeezed_models import INT4, batch, loss_of, net, squeezed, train, wrapped

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import PeerLost, StepError
from trainingkit.sync.control import peers_watched
from trainingkit.sync.doors import squeeze

FATAL_STEP = 3


def loses_a_peer(context: Context, stage: int) -> dict[str, Any]:
    """The last rank kills itself between two stages of a bucket's exchange; the others say what they saw."""
    ddp = wrapped(net())
    sync: Any = squeeze(ddp, INT4)
    dies = context.rank == context.world_size - 1
    train(ddp, context, range(FATAL_STEP))
    if dies:
        _die_at(sync, stage)
    begin = time.monotonic()
    found: dict[str, Any] = {}
    try:
        with peers_watched():
            loss_of(ddp, batch(FATAL_STEP, context.rank)).backward()
    except PeerLost as error:
        found = {"text": str(error), "seconds": time.monotonic() - begin}
    try:
        with peers_watched():
            loss_of(ddp, batch(FATAL_STEP + 1, context.rank)).backward()
    except Exception as error:
        found["later"] = type(error).__name__
    sync.close()
    found["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("exchange")]
    (context.tmp / f"rank-{context.rank}").write_text(repr(found))
    return found


def _die_at(sync: Any, stage: int) -> None:
    put = sync._queue.put

    def deadly(stages: Any, done: Any) -> None:
        stages = list(stages)
        stages[stage] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        put(stages, done)

    sync._queue.put = deadly


@pytest.mark.parametrize(("ranks", "stage"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_a_rank_that_dies_in_an_exchange_is_noticed_at_once(pool: Pool, ranks: int, stage: int) -> None:
    with pytest.raises(RankFailed) as caught:
        pool.run(loses_a_peer, ranks, stage, grace_s=20.0)
    assert caught.value.died == {ranks - 1: signal.SIGKILL}
    assert not caught.value.stuck
    assert sorted(caught.value.results) == list(range(ranks - 1))
    for found in caught.value.results.values():
        assert found["text"].startswith("The exchange with another rank failed: that rank, or the way to it, is gone.")
        assert "`trainingkit resume RUN`, or for a script of your own, start it again" in found["text"]
        assert found["seconds"] < 10
        assert found["later"] in ("PeerLost", "RuntimeError"), "no later step is made either"
        assert found["threads"] == [], "close ends the threads after an error, too"


def fails_here(context: Context) -> list[str]:
    """A stage of rank 0 raises what has nothing to do with peers."""
    ddp = wrapped(net())
    told = []
    with squeezed(ddp) as sync:
        train(ddp, context, range(2))
        put = sync._queue.put

        def broken(stages: Any, done: Any) -> None:
            put([*stages[:-1], _raise], done)

        sync._queue.put = broken
        for step in (2, 3):
            try:
                with peers_watched():
                    loss_of(ddp, batch(step, context.rank)).backward()
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
    return told


def _raise() -> None:
    raise StepError("A message is damaged.")


def test_an_error_of_ones_own_is_not_called_a_lost_peer_and_stays(pool: Pool) -> None:
    for told in pool.run(fails_here, 2):
        assert told[0].startswith("RuntimeError: ")
        assert "the exchange failed: StepError: A message is damaged." in told[0]
        assert len(told) == 2


def closed(context: Context) -> str:
    ddp = wrapped(net())
    with squeezed(ddp):
        train(ddp, context, range(1))
    threads = [t.name for t in threading.enumerate() if t.name.startswith("exchange")]
    assert threads == []
    try:
        train(ddp, context, range(1, 2))
    except StepError as error:
        return str(error)
    return ""


def test_a_closed_door_says_so(pool: Pool) -> None:
    for told in pool.run(closed, 2):
        assert told.startswith("The exchange of this model is closed.")
        assert "Call `detach` instead of `close`" in told


SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from trainingkit.sync.doors import squeeze

def train(rank, ending):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}-{ending}", rank=rank, world_size=2)
    ddp = DDP(nn.Sequential(nn.Linear(64, 80), nn.Linear(80, 4)))
    sync = squeeze(ddp, "all|int4(block=64)")
    for _ in range(4):
        ddp(torch.randn(2, 64)).sum().backward()
    assert sync.stats()["steps"] == 4
    if ending == "leave" and rank == 1:
        sys.exit(3)
    if ending == "leave":
        ddp(torch.randn(2, 64)).sum().backward()

children = {}
for ending in ("end", "leave"):
    for rank in range(2):
        child = os.fork()
        if not child:
            train(rank, ending)
            sys.exit(0)
        children[child] = f"{ending} {rank}"
for child, name in children.items():
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_script_that_never_closes_ends(tmp_path: Path) -> None:
    """The queue's threads do not keep the interpreter, neither at a normal end nor after a peer has left."""
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path / "store")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split("\n")[:-1] == ["end 0 0", "end 1 0", "leave 0 1", "leave 1 3"], done.stderr[-3000:]
    assert "the exchange failed: RuntimeError: " in done.stderr
