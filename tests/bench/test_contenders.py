"""Every registered contender, on real ranks: it trains, agrees when it says so, and fails alone."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from trainingkit.bench.contender import CONTENDERS
from trainingkit.bench.network.rank import Entrant, Rank
from trainingkit.bench.network.spec import NetworkSpec
from trainingkit.bench.paired import ContenderFailed
from trainingkit.cluster.meeting import Meeting

SPEC = NetworkSpec(hosts=2, scale="tiny", codec="all|int8", timeout_s=20.0, eval_every=2)
STEPS = 4


def make_rank(context, spec=SPEC) -> Rank:
    torch.set_num_threads(1)
    return Rank(spec, Meeting(context.group, context.store, context.rank), "fp32")


def fingerprint(entrant: Entrant) -> list[float]:
    return [float(p.double().sum()) for p in entrant.model.parameters()]


def train_all(context, names):
    rank = make_rank(context)
    found = {}
    for name in names:
        entrant = rank.enter(name)
        turns = []
        for _ in range(STEPS // 2):
            turns.append(rank.turn(entrant, 2))
            rank.look(entrant)
        entrant.contender.close()
        last = turns[-1]
        found[name] = (last.seconds, last.said_bytes, fingerprint(entrant), entrant.losses, entrant.contender.agrees)
    return found


def test_every_contender_trains_and_agrees_when_it_says_so(pool):
    names = [*CONTENDERS.names(), "none again"]
    one, other = pool.run(train_all, 2, names, deadline_s=60)
    for name in names:
        seconds, said, weights, losses, agrees = one[name]
        assert seconds > 0
        assert seconds == other[name][0], "all ranks know the same seconds"
        assert (weights == other[name][2]) is agrees, name
        assert (said > 0) is agrees, name
        assert [step for step, _ in losses] == ([2.0, 4.0] if agrees else []), name
        assert losses == other[name][3]
    assert one["none"][2] == one["none again"][2], "a twin starts from the same seed and sees the same batches"
    plain = one["plain"][1]
    assert one["bf16"][1] == plain / 2
    assert one["powersgd-2"][1] < one["powersgd-4"][1] < plain / 2
    exact, rounded = (torch.tensor(one[name][2]) for name in ("plain", "bf16"))
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.2)
    assert one["plain"][3][-1][1] == pytest.approx(one["bf16"][3][-1][1], abs=0.01)


def fail_on_one_rank(context):
    rank = make_rank(context)
    entrant = rank.enter("plain")
    sound = rank.enter("bf16")
    if context.rank == 1:

        def breaks():
            raise RuntimeError("the cable is cut\nand more")

        object.__setattr__(entrant.contender, "finish", breaks)
    with pytest.raises(ContenderFailed) as caught:
        rank.turn(entrant, 1)
    rank.turn(sound, 1)
    dist.barrier()
    return str(caught.value)


def test_a_failure_on_one_rank_is_told_on_all_and_the_others_go_on(pool):
    assert pool.run(fail_on_one_rank, 2, deadline_s=60) == ["rank 1: the cable is cut"] * 2
