"""A step's phases add up to its seconds, and waiting is told from computing: the other rank shows the stall."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import Net, batches, config, loss_fn, open_alone, open_rank

from ranks import Context, Fault, Pool
from trainingkit.core.records import PHASES, StepRecord, read_records
from trainingkit.core.runfolder import RunFolder
from trainingkit.trainer.kit import Kit
from trainingkit.trainer.phases import PhaseClock

SLOW_S = 0.25
SLOW_STEP = 3


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(PHASES), st.integers(0, 3000)), max_size=12))
def test_phases_add_up(spans: list[tuple[str, int]]) -> None:
    clock = PhaseClock()
    begin = time.perf_counter()
    for name, turns in spans:
        with clock.phase(name):
            sum(range(turns))
    step_s, phases = clock.lap()
    assert sum(phases.values()) == pytest.approx(step_s, abs=1e-9)
    assert set(phases) <= set(PHASES)
    assert min(phases.values()) >= 0
    assert step_s <= time.perf_counter() - begin + 0.01
    assert clock.lap()[0] < step_s + 0.5


def test_excluded_time_belongs_to_no_step() -> None:
    begin = time.perf_counter()
    clock = PhaseClock()
    with clock.excluded():
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
    step_s, phases = clock.lap()
    assert step_s <= time.perf_counter() - begin - 0.05
    assert sum(phases.values()) == pytest.approx(step_s, abs=1e-9)


def step_records(folder: Path, rank: int) -> list[StepRecord]:
    return [r for r in read_records(RunFolder(folder).metrics(rank))[0] if isinstance(r, StepRecord)]


def test_records_of_a_run_add_up(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings_ = config(run={"steps": 6}, step={"accumulate": 2}, snapshot={"every": 2})
    with Kit(open_alone(tmp_path), model, optimizer, settings_) as kit:
        for batch in kit.batches(batches(5)):
            kit.step(loss_fn, batch)
            kit.evaluate(batches(2), loss_fn)
    records = step_records(tmp_path, 0)
    assert len(records) == 6
    for record in records:
        assert sum(record.phases.values()) == pytest.approx(record.step_s, rel=1e-6)
        assert record.phases["forward"] > 0 and record.phases["backward"] > 0


def uneven(context: Context, folder: str, where: str, norm: bool) -> None:
    """Three times as long as needed on one rank, in its loader or in its forward, by the pool's fault."""
    torch.manual_seed(1)
    model = Net(0.0, norm=norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loader() -> Iterator[Any]:
        for number, batch in enumerate(batches(5, rank=context.rank), start=1):
            if where == "input":
                context.at_step(number)
            yield batch

    def slow_loss(model: Any, batch: Any) -> torch.Tensor:
        found = loss_fn(model, batch)
        if where == "forward":
            context.at_step(kit.step_number + 1)
        return found

    with Kit(open_rank(context, Path(folder)), model, optimizer, config(run={"steps": 5})) as kit:
        for batch in kit.batches(loader()):
            kit.step(slow_loss, batch)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("where", ["input", "forward"])
def test_the_other_rank_shows_the_stall(pool: Pool, tmp_path: Path, where: str, slow: int, norm: bool) -> None:
    pool.run(uneven, 2, str(tmp_path), where, norm, faults=[Fault(slow, SLOW_STEP, "slow", seconds=SLOW_S)])
    own = step_records(tmp_path, slow)[SLOW_STEP - 1]
    other = step_records(tmp_path, 1 - slow)[SLOW_STEP - 1]
    assert own.phases[where] > SLOW_S
    assert own.phases["stall"] < SLOW_S / 2
    assert other.phases["stall"] > SLOW_S * 0.6, other.phases
    assert other.phases[where] < SLOW_S / 2
    for record in (own, other):
        assert sum(record.phases.values()) == pytest.approx(record.step_s, rel=1e-6)
