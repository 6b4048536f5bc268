"""Ranks that train apart, through real snapshots of `Kit`: resume == continue, other numbers of ranks, other wires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import FEATURES, config, digest, events, losses, open_rank, train_rank
from torch import nn

from ranks import Context, Fault, Pool, RankFailed
from trainingkit.recovery import load_new, newest_good
from trainingkit.trainer.kit import Kit

TOTAL = 11
INT4 = "all|int4(block=64)"
TOPK = "topk(density=0.05, chunk=4096)|int2"


def wide() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 96), nn.Dropout(0.1), nn.Linear(96, 64), nn.Linear(64, 3)
    )


def samples(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Uneven batches, so that weights count."""
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for index in range(5):
        x = torch.randn(3 + (rank + index) % 3, FEATURES, generator=generator)
        made.append((x, (x.sum(dim=1) > 0).long()))
    return made


def loss_fn(model: Any, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(context: Context, folder: str, codec: str, steps: int = TOTAL) -> dict[str, Any]:
    sync = {"codec": codec, "bucket_mb": 0.02, "islands": "off"}
    settings = config(run={"steps": steps}, sync=sync, snapshot={"every": 4})
    session = open_rank(context, Path(folder))
    model = wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.8)
    torch.manual_seed(2 + context.rank)
    with Kit(session, model, optimizer, settings, rate=rate) as kit:
        for batch in kit.batches(samples(context.rank)):
            kit._keeper._snapshots.wait()
            context.at_step(kit.step_number + 1)
            kit.step(loss_fn, batch)
    return {
        "model": digest(model.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "rate": digest(rate.state_dict()),
        "sync": digest(kit._engine.sync.state_dict()),
        "step": kit.step_number,
    }


@pytest.mark.parametrize(
    ("ranks", "codec"),
    [
        (2, f"every(4, delay=1)|{TOPK}"),
        (3, f"every(4, tau=2, fragments=2, decay=0.9, outer_lr=0.7, outer_momentum=0.9, nesterov=true)|{INT4}"),
        pytest.param(2, f"every(3)|{INT4}", marks=pytest.mark.slow),
        pytest.param(3, f"every(3, decay=0.9)|{TOPK}", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_resumes_as_if_it_had_gone_on(pool: Pool, tmp_path: Path, ranks: int, codec: str) -> None:
    """From the snapshot of step 8: in the middle of a round, or with rounds in flight."""
    straight = pool.run(train, ranks, str(tmp_path / "straight"), codec)
    with pytest.raises(RankFailed):
        pool.run(train, ranks, str(tmp_path / "killed"), codec, faults=[Fault(r, 10, "kill") for r in range(ranks)])
    good, _ = newest_good(tmp_path / "killed" / "snapshots")
    assert good is not None and good.step == 8
    resumed = pool.run(train, ranks, str(tmp_path / "killed"), codec)
    assert resumed == straight
    for rank in range(ranks):
        assert straight[rank]["step"] == TOTAL
        assert straight[rank]["model"] == straight[0]["model"], "at its end a run has one model"
        assert straight[rank]["optimizer"] != straight[rank - 1]["optimizer"], "moments are each rank's own"
        assert losses(tmp_path / "killed", rank) == losses(tmp_path / "straight", rank)


def test_a_stop_on_request_does_not_settle(pool: Pool, tmp_path: Path) -> None:
    """Agreed on one step later, on all ranks after the same one, in the middle of a round; with buffers and dropout."""
    settings = {"run": {"steps": 11}, "sync": {"codec": "every(4)|none", "islands": "off"}}
    straight = pool.run(train_rank, 2, str(tmp_path / "straight"), settings, {"loader": "shuffled"})
    options = {"loader": "shuffled", "stop_at": 5, "stop_rank": 1}
    stopped = pool.run(train_rank, 2, str(tmp_path / "stopped"), settings, options)
    assert [(one["step"], one["exit_code"]) for one in stopped] == [(6, 75)] * 2
    assert stopped[0]["model"] != stopped[1]["model"]
    assert pool.run(train_rank, 2, str(tmp_path / "stopped"), settings, {"loader": "shuffled"}) == straight
    assert straight[0]["model"] == straight[1]["model"]


def test_what_the_last_exchange_sent_is_said(pool: Pool, tmp_path: Path) -> None:
    """It is in no step's record; and a run that ends before ranks meet says so when it begins."""
    pool.run(train, 2, str(tmp_path / "over"), f"every(4)|{INT4}")
    told = [(step, text) for step, event, text in events(tmp_path / "over") if event == "sync"]
    assert [step for step, _ in told] == [TOTAL]
    assert told[0][1].startswith("The last exchange brought all ranks to one model; this one sent ")
    pool.run(train, 2, str(tmp_path / "even"), f"every(4)|{INT4}", 8)
    assert not any(event == "sync" for _, event, _ in events(tmp_path / "even"))
    ended = pool.run(train, 2, str(tmp_path / "few"), f"every(40)|{INT4}")
    assert ended[0]["model"] == ended[1]["model"]
    told = [(step, text) for step, event, text in events(tmp_path / "few") if event == "sync"]
    assert [step for step, _ in told] == [0, TOTAL]
    assert told[0][1].startswith(f"Ranks exchange every 40 steps and run.steps is {TOTAL}: they train on their own")


def settles(context: Context, folder: str) -> list[str]:
    """The loop ends early, right after a snapshot in mid-round: what is looked at then is what is saved."""
    sync = {"codec": f"every(4)|{INT4}", "bucket_mb": 0.02, "islands": "off"}
    model = wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": TOTAL}, sync=sync)) as kit:
        for batch in kit.batches(samples(context.rank)):
            kit.step(loss_fn, batch)
            if kit.step_number == 6:
                break
        kit._save(wait=True)
        seen = [digest(model.state_dict()), str(kit.settle()), digest(model.state_dict()), str(kit.settle())]
    return [*seen, digest(model.state_dict())]


def test_a_loop_that_ends_early_saves_the_model_that_it_settled_on(pool: Pool, tmp_path: Path) -> None:
    first, second = pool.run(settles, 2, str(tmp_path))
    assert first[0] != second[0] and first[1:] == second[1:]
    assert first[1:4:2] == ["True", "False"] and first[2] == first[4]
    good, _ = newest_good(tmp_path / "snapshots")
    assert good is not None and good.step == 6
    found = load_new(good.path, of=0)[0]
    assert digest({name: found[f"model/{name}"] for name in wide().state_dict()}) == first[2]


def test_snapshots_hold_the_agreed_model(pool: Pool, tmp_path: Path) -> None:
    """In the middle of a round, too: what eval and export read is no rank's own model."""
    with pytest.raises(RankFailed):
        pool.run(train, 2, str(tmp_path), f"every(3)|{INT4}", faults=[Fault(r, 6, "kill") for r in range(2)])
    good, _ = newest_good(tmp_path / "snapshots")
    assert good is not None and good.step == 4
    found = [load_new(good.path, of=rank)[0] for rank in range(2)]
    for name in ("0.weight", "5.bias"):
        agreed = found[0][f"model/{name}"]
        assert torch.equal(agreed.flatten(), found[0][f"sync/agreed/parameters/{name}"])
        own = [found[rank][f"rank-{rank}/sync/local/{name}"] for rank in range(2)]
        assert not torch.equal(own[0], own[1]) and not torch.equal(own[0], agreed.flatten())


@pytest.mark.parametrize(("before", "after"), [(2, 3), pytest.param(3, 2, marks=pytest.mark.slow), (3, 1)])
def test_another_number_of_ranks_goes_on(pool: Pool, tmp_path: Path, before: int, after: int) -> None:
    codec = f"every(4, delay=1, outer_lr=0.9)|{TOPK}"
    with pytest.raises(RankFailed):
        pool.run(train, before, str(tmp_path), codec, faults=[Fault(r, 10, "kill") for r in range(before)])
    ended = pool.run(train, after, str(tmp_path), codec, 16)
    assert len({one["model"] for one in ended}) == 1
    text = f"The snapshot is of {before} ranks: all start from its agreed model"
    assert [(step, event) for step, event, told in events(tmp_path) if told.startswith(text)] == [(8, "resume")]
    values = losses(tmp_path)
    assert sorted(values) == list(range(1, 17)) and values[16] is not None and values[1] is not None
    assert values[16] < values[1]


@pytest.mark.parametrize("codec", [INT4, "none"])
def test_a_run_goes_over_to_gradients_and_back(pool: Pool, tmp_path: Path, codec: str) -> None:
    apart = f"every(4)|{INT4}"
    for steps, wire in ((6, apart), (9, codec), (12, apart)):
        ended = pool.run(train, 2, str(tmp_path), wire, steps)
        assert len({one["model"] for one in ended}) == 1
        if wire == codec:
            assert len({one["optimizer"] for one in ended}) == 1, "replicas have one optimizer"
    told = [text for _, event, text in events(tmp_path) if event == "resume" and text.startswith("Ranks trained apart")]
    assert len(told) == 1
    assert "of rank 0" in told[0]


def test_another_rhythm_goes_on(pool: Pool, tmp_path: Path) -> None:
    """From a snapshot in which a round flies, which is applied; then from fragments to one."""
    for wire, end in ((f"every(4, delay=1)|{INT4}", 6), (f"every(3, fragments=2, tau=1)|{INT4}", 10)):
        with pytest.raises(RankFailed):
            pool.run(train, 2, str(tmp_path), wire, faults=[Fault(r, end, "kill") for r in range(2)])
    ended = pool.run(train, 2, str(tmp_path), "every(2)|none")
    assert len({one["model"] for one in ended}) == 1
    assert [event for _, event, _ in events(tmp_path)].count("resume") == 2
    assert sorted(losses(tmp_path)) == list(range(1, TOTAL + 1))


def poisoned(context: Context, folder: str, codec: str, poison: list[int]) -> dict[str, Any]:
    """The last rank's loss is NaN in the steps `poison`."""
    model = wide()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    settings = config(run={"steps": 9}, sync={"codec": codec, "islands": "off"})
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings, rate=rate) as kit:
        for batch in kit.batches(samples(context.rank)):
            bad = context.rank == context.world_size - 1 and kit.step_number + 1 in poison
            kit.step(lambda m, b, bad=bad: loss_fn(m, b) * (float("nan") if bad else 1.0), batch)
    return {"model": digest(model.state_dict()), "rate": rate.last_epoch}


@pytest.mark.parametrize("poison", [[2], [3], [4, 5, 6]], ids=["mid-round", "round's end", "whole round"])
def test_a_rank_gives_a_step_up_alone(pool: Pool, tmp_path: Path, poison: list[int]) -> None:
    ended = pool.run(poisoned, 2, str(tmp_path), f"every(3)|{INT4}", poison)
    assert ended[0] == ended[1] and ended[0]["rate"] == 9, "one model, and schedules stay aligned"
    for rank in range(2):
        told = [(step, text) for step, event, text in events(tmp_path, rank) if event == "abort"]
        alone = "was aborted: the gradient is not finite on this rank; the others go on."
        assert told == ([(step, f"Step {step} {alone}") for step in poison] if rank else [])


def evaluated(context: Context, folder: str) -> dict[str, Any]:
    model = wide().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = config(run={"steps": 5}, sync={"codec": "every(4)|none", "islands": "off"})
    held = samples(99)[:2]
    found: dict[str, Any] = {"losses": [], "own": []}
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        found["losses"].append(kit.evaluate(held, loss_fn)["loss"])
        for batch in kit.batches(samples(context.rank)):
            kit.step(loss_fn, batch)
            own = digest(model.state_dict())
            found["losses"].append(kit.evaluate(held, loss_fn)["loss"])
            assert digest(model.state_dict()) == own, "evaluation leaves a rank's own model alone"
            found["own"].append(own)
    return found


def test_the_agreed_model_is_evaluated(pool: Pool, tmp_path: Path) -> None:
    ended = pool.run(evaluated, 2, str(tmp_path))
    losses_ = ended[0]["losses"]
    assert losses_ == ended[1]["losses"]
    assert len(set(losses_[:4])) == 1 and len(set(losses_[3:])) == 3, "it changes with a round, and at the run's end"
    assert [a == b for a, b in zip(ended[0]["own"], ended[1]["own"], strict=True)] == [False, False, False, True, True]
