"""Where the data end: in mid-step, earlier on one rank, or before the first batch. Nothing hangs, nothing is hidden."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, batches, config, digest, events, loss_fn, losses, open_alone, open_rank

from ranks import Context, Pool, RankFailed
from trainingkit.core.errors import DataError
from trainingkit.core.outcome import read as read_outcomes
from trainingkit.core.runfolder import RunFolder
from trainingkit.recovery import newest_good
from trainingkit.trainer.feed import Feed
from trainingkit.trainer.kit import Kit


def stream(count: int, rank: int) -> Iterator[Any]:
    """A loader without a length."""
    yield from batches(count, rank=rank)


def one_pass(context: Context, folder: str, counts: list[int], accumulate: int, sized: bool) -> tuple[int, str, str]:
    """Walk uneven data once; steps done, the kit's state, the buffers."""
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = counts[context.rank]
    loader = batches(count, rank=context.rank) if sized else stream(count, context.rank)
    settings = config(step={"accumulate": accumulate})
    with Kit(open_rank(context, Path(folder)), model, optimizer, settings) as kit:
        for batch in kit.batches(loader):
            kit.step(loss_fn, batch)
    return kit.step_number, digest(model.state_dict()), digest(optimizer.state_dict())


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize(
    ("counts", "accumulate", "steps"),
    [([5, 5], 1, 5), ([5, 3], 1, 3), ([0, 3], 1, 0), ([5, 4], 2, 2), ([4, 7], 3, 1), ([3, 6, 5], 2, 1)],
)
def test_all_ranks_end_with_the_shortest_data(
    pool: Pool, tmp_path: Path, counts: list[int], accumulate: int, steps: int, sized: bool
) -> None:
    if counts[0] == 0:
        with pytest.raises(RankFailed, match="The loader gave no batch"):
            pool.run(one_pass, len(counts), str(tmp_path), counts, accumulate, sized, deadline_s=20)
        return
    ended = pool.run(one_pass, len(counts), str(tmp_path), counts, accumulate, sized, deadline_s=20)
    assert [number for number, *_ in ended] == [steps] * len(counts)
    assert len({(model, optimizer) for _, model, optimizer in ended}) == 1
    good, damaged = newest_good(RunFolder(tmp_path).snapshots)
    assert good is not None and good.step == steps and not damaged
    assert {o.status for o in read_outcomes(RunFolder(tmp_path)).values()} == {"done"}
    shortest = min(counts)
    for rank, count in enumerate(counts):
        said = [text for _, event, text in events(tmp_path, rank) if event == "leftover"]
        assert any("Another rank's data ended" in text for text in said) == (count > shortest)
        assert any("The data ended in mid-step" in text for text in said) == (shortest % accumulate != 0)


def test_the_half_step_at_the_end_leaves_no_trace(tmp_path: Path) -> None:
    """Seven micro-batches by twos are three steps: batch norm's buffers do not know of the seventh."""
    found = []
    for count in (6, 7):
        torch.manual_seed(1)
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = open_alone(tmp_path / str(count))
        with Kit(session, model, optimizer, config(step={"accumulate": 2})) as kit:
            for batch in kit.batches(batches(7)[:count]):
                kit.step(loss_fn, batch)
        assert sorted(losses(tmp_path / str(count))) == [1, 2, 3]
        found.append(digest(model.state_dict()))
    assert found[0] == found[1]


def test_leaving_the_loop_in_mid_step_saves_the_last_whole_one(tmp_path: Path) -> None:
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = config(run={"steps": 9}, step={"accumulate": 2})
    with Kit(open_alone(tmp_path), model, optimizer, settings) as kit:
        for number, batch in enumerate(kit.batches(batches(9))):
            kit.step(loss_fn, batch)
            if number == 4:
                break
    good, _ = newest_good(RunFolder(tmp_path).snapshots)
    assert good is not None and good.step == 2
    assert events(tmp_path)[0][1:] == ("leftover", "The loop ended in mid-step; the last micro-batches were not used.")


def test_one_pass_is_resumed_in_its_middle_and_only_once(tmp_path: Path) -> None:
    for stop_at in (3, None, None):
        torch.manual_seed(1)
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Kit(open_alone(tmp_path), model, optimizer, config()) as kit:
            for batch in kit.batches(batches(6)):
                if kit.step_number + 1 == stop_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                kit.step(loss_fn, batch)
        assert kit.step_number == (stop_at or 6)


def test_epochs_by_hand_start_from_the_saved_place_once(tmp_path: Path) -> None:
    """`for epoch in ...: for batch in kit.batches(...)`: only the first pass after a resume is a shortened one."""
    counts = []
    for stop_at in (4, None):
        model = Net(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Kit(open_alone(tmp_path), model, optimizer, config()) as kit:
            for _ in range(2):
                done = kit.step_number
                for batch in kit.batches(batches(6)):
                    if kit.step_number + 1 == stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                    kit.step(loss_fn, batch)
                counts.append(kit.step_number - done)
    assert counts == [4, 0, 2, 6]


def test_empty_and_shrunken_loaders_are_explained() -> None:
    with pytest.raises(DataError, match="The loader gave no batch") as caught:
        next(iter(Feed([], passes=None)))
    assert "Check the data, the batch size and drop_last" in str(caught.value)
    feed = Feed([1, 2, 3], passes=1)
    stream = iter(feed)
    assert [next(stream) for _ in range(3)] == [1, 2, 3]
    shorter = Feed([1, 2], passes=1)
    shorter.load_state_dict(feed.state_dict())
    with pytest.raises(DataError, match="shorter than when the run was saved") as caught:
        next(iter(shorter))
    assert "found:     2 batches" in str(caught.value)
    assert "expected:  at least 3" in str(caught.value)
