"""DDP's own all-reduce, by hand: a hook that was registered cannot be taken off, but it can do what DDP does."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.futures import Future

from trainingkit.exchange.messages import mean_factors
from trainingkit.exchange.meter import WireMeter


class DenseReduce:
    """Times 1/N, then all-reduce, as DDP does it: the same bits. A ring sends 2 (N-1)/N of the bytes from each rank.

    Args:
        group: the group that DDP reduces over; used on the thread of the hook, as DDP uses it.
        meter: told of every all-reduce.

    Attributes:
        sent_bytes: bytes this rank has sent so far, by the ring's formula.
    """

    def __init__(self, group: dist.ProcessGroup, meter: WireMeter) -> None:
        self.sent_bytes = 0
        self._meter = meter
        self._group = group
        self._ranks = dist.get_world_size(group)

    def start(self, buffer: torch.Tensor, factor: float) -> Future[torch.Tensor]:
        """Reduce a bucket in place.

        Args:
            factor: N w_r / W of this rank; 1.0 leaves DDP's bits as they are, 0.0 leaves this rank out.
        """
        buffer.mul_(1.0 / self._ranks)
        if factor == 0.0:
            buffer.zero_()
        elif factor != 1.0:
            buffer.mul_(factor)
        sent_bytes = round(2 * (self._ranks - 1) / self._ranks * buffer.numel() * buffer.element_size())
        self.sent_bytes += sent_bytes
        work = dist.all_reduce(buffer, group=self._group, async_op=True)
        assert work is not None
        self._meter.watch(work, sent_bytes)
        return work.get_future().then(lambda done: done.value()[0])

    def agreed_weights(self, weight: float, device: torch.device) -> list[float]:
        """All ranks' weights, in rank order; one tiny all-gather that waits for the last rank."""
        mine = torch.tensor([weight], device=device)
        weights = [torch.zeros_like(mine) for _ in range(self._ranks)]
        dist.all_gather(weights, mine, group=self._group)
        return [float(each) for each in weights]

    def factor(self, weights: list[float]) -> float:
        """N w_r / W of this rank."""
        return mean_factors(weights)[dist.get_rank(self._group)]

    def total(self, share: float, device: torch.device) -> Callable[[], float]:
        """The sum of all ranks' shares, under way: call what is returned where it must be there."""
        shares = torch.tensor([share], device=device)
        work = dist.all_reduce(shares, group=self._group, async_op=True)

        def wait() -> float:
            assert work is not None
            work.wait()
            return float(shares)

        return wait
