"""DDP's own all-reduce, by hand: a hook that was registered cannot be taken off, but it can do what DDP does."""

from __future__ import annotations

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

    def agreed_factor(self, weight: float, device: torch.device) -> float:
        """N w_r / W of this rank; one tiny all-gather."""
        mine = torch.tensor([weight], device=device)
        weights = [torch.zeros_like(mine) for _ in range(self._ranks)]
        dist.all_gather(weights, mine, group=self._group)
        return mean_factors([float(each) for each in weights])[dist.get_rank(self._group)]
