"""What a rank has waited for is in the step's account, however late the backend's thread is."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ranks import Context, Pool
from trainingkit.exchange.meter import WireMeter

ROUNDS = 300


def metered(context: Context) -> list[tuple[int, bool]]:
    meter, values = WireMeter(), torch.ones(64)
    found = []
    for number in range(ROUNDS):
        work = dist.all_reduce(values, group=context.group, async_op=True)
        assert work is not None
        meter.watch(work, number)
        work.wait()
        taken = meter.take()
        found += [(each.sent_bytes, each.end_s >= each.begin_s) for each in taken]
    return found


def test_each_transfer_is_in_the_account_of_its_step_once(pool: Pool) -> None:
    for found in pool.run(metered, 2):
        assert found == [(number, True) for number in range(ROUNDS)]


class Untold:
    """A collective that is over, and whose end nobody has told of yet."""

    def __init__(self) -> None:
        self.future: torch.futures.Future[None] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[None]:
        return self.future

    def is_completed(self) -> bool:
        return True


def test_an_end_that_is_told_late_counts_once() -> None:
    meter, work = WireMeter(), Untold()
    meter.watch(work, 7)  # pyright: ignore[reportArgumentType]
    assert [each.sent_bytes for each in meter.take()] == [7]
    work.future.set_result(None)
    assert meter.take() == []


def unwatched(context: Context) -> int:
    meter = WireMeter(active=False)
    work = dist.all_reduce(torch.ones(4), group=context.group, async_op=True)
    assert work is not None
    meter.watch(work, 4)
    work.wait()
    return len(meter.take())


def test_where_nobody_asks_nothing_is_noted(pool: Pool) -> None:
    assert pool.run(unwatched, 2) == [0, 0]
