"""A step is a transaction: what is not finite on one rank leaves every rank as it was, and training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, batches, config, digest, events, loss_fn, losses, open_alone, open_rank

from ranks import Context, Pool, RankFailed
from trainingkit.core.records import StepRecord, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.kit import Kit


def poisoned(context: Context, folder: str, settings: dict[str, Any], poison: list[int]) -> list[dict[str, str]]:
    """Rank 1's loss is NaN in the steps `poison`. The state before and after each step."""
    session = open_rank(context, Path(folder))
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    states = [_state(model, optimizer, rate)]
    with Kit(session, model, optimizer, config(**settings), rate=rate) as kit:
        for batch in kit.batches(batches(20, rank=context.rank)):
            step = kit.step_number + 1

            def loss(model: Any, batch: Any, step: int = step) -> torch.Tensor:
                found = loss_fn(model, batch)
                return found * float("nan") if step in poison and context.rank == context.world_size - 1 else found

            kit.step(loss, batch)
            states.append(_state(model, optimizer, rate))
    return states


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rate: Any) -> dict[str, str]:
    return {
        "parameters": digest([p.data for p in model.parameters()]),
        "buffers": digest(dict(model.named_buffers())),
        "optimizer": digest(optimizer.state_dict()),
        "rate": digest(rate.state_dict()),
    }


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_aborted_step_changes_nothing_anywhere(pool: Pool, tmp_path: Path, ranks: int, accumulate: int) -> None:
    settings = {"run": {"steps": 5}, "step": {"accumulate": accumulate}}
    ended = pool.run(poisoned, ranks, str(tmp_path), settings, [3])
    for rank in range(ranks):
        states = ended[rank][::accumulate]
        assert states[3] == states[2], "step 3 was aborted"
        assert all(states[4][key] != states[3][key] for key in ("parameters", "buffers", "optimizer", "rate"))
        records = [r for r in read_records(RunFolder(tmp_path).metrics(rank))[0] if isinstance(r, StepRecord)]
        assert [r.committed for r in records] == [True, True, False, True, True]
        assert records[2].reason == "the gradient is not finite"
        assert records[3].lr == records[2].lr
        assert (3, "abort", "Step 3 was aborted: the gradient is not finite.") in events(tmp_path, rank)
    last = ended[0][-1]
    for rank in range(ranks):
        assert {key: ended[rank][-1][key] for key in ("parameters", "optimizer")} == {
            key: last[key] for key in ("parameters", "optimizer")
        }


def test_too_many_aborts_in_a_row_end_the_run_with_a_reason(pool: Pool, tmp_path: Path) -> None:
    settings = {"run": {"steps": 9}, "step": {"max_aborts": 3}}
    with pytest.raises(RankFailed) as caught:
        pool.run(poisoned, 2, str(tmp_path), settings, [2, 4, 5, 6])
    text = caught.value.traceback
    assert "StepError: 3 steps in a row were aborted because the gradient was not finite." in text
    assert "field:     step.max_aborts" in text
    assert "next step: Lower optimizer.lr" in text
    for rank in range(2):
        assert sorted(losses(tmp_path, rank)) == [1, 2, 3, 4, 5, 6], "the last aborted step is on record, too"
        assert [step for step, event, _ in events(tmp_path, rank) if event == "abort"] == [2, 4, 5, 6]


def test_an_abort_resumes_like_any_step(tmp_path: Path) -> None:
    """The feed and the step number go on over an aborted step; so does a resumed run."""
    session = open_alone(tmp_path)
    torch.manual_seed(1)
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Kit(session, model, optimizer, config(run={"steps": 3})) as kit:
        for batch in kit.batches(batches(3)):
            kit.step(lambda model, batch: loss_fn(model, batch) * float("inf"), batch)
    assert kit.step_number == 3
    assert losses(tmp_path) == {1: None, 2: None, 3: None}


def test_a_loss_that_is_none_is_explained(tmp_path: Path) -> None:
    model = Net(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(Exception, match="did not return a loss") as caught,
        Kit(open_alone(tmp_path), model, optimizer, config(run={"steps": 3})) as kit,
    ):
        for batch in kit.batches(batches(3)):
            kit.step(lambda model, batch: model(batch[0]), batch)
    assert "found:     Tensor of shape [4, 3]" in str(caught.value)
    assert "expected:  a 0-dim tensor" in str(caught.value)
    assert "next step: Return the mean loss over the batch" in str(caught.value)
