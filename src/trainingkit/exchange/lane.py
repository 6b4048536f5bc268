"""A lane: a process group of its own, two verbs on uint8, one thread that issues them.

Gloo, NCCL and torchft's groups all have these two verbs. A lane counts the bytes that leave this rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from trainingkit.exchange.meter import WireMeter
from trainingkit.exchange.work import Waitable


class Lane:
    """One ordered stream of collectives.

    Args:
        group: used by nobody else. Every rank issues the same verbs with the same sizes in the same order.
        meter: told of every collective.
    """

    def __init__(self, group: dist.ProcessGroup, meter: WireMeter | None = None) -> None:
        self.group = group
        self._meter = meter
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self.sent_bytes = 0

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> Waitable:
        """Row r of `sent` goes to rank r; row r of `received` comes from rank r. Both [world_size, bytes] uint8."""
        work = dist.all_to_all_single(received.view(-1), sent.view(-1), group=self.group, async_op=True)
        return self._counted(work, sent.numel() // self.world_size * (self.world_size - 1))

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> Waitable:
        """`sent` [bytes] uint8 of every rank, as the rows of `received` [world_size, bytes] on every rank."""
        work = dist.all_gather(list(received.unbind()), sent, group=self.group, async_op=True)
        return self._counted(work, sent.numel() * (self.world_size - 1))

    def _counted(self, work: dist.Work | None, sent_bytes: int) -> dist.Work:
        assert work is not None
        self.sent_bytes += sent_bytes
        if self._meter is not None:
            self._meter.watch(work, sent_bytes)
        return work
