"""Every rank's row of numbers on every rank: an exchange that runs behind the next step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist


class Agreement:
    """One row of float64 from each rank at a time.

    Args:
        group: a Gloo group used by nobody else.
        width: numbers of a row.
    """

    def __init__(self, group: dist.ProcessGroup, width: int) -> None:
        self._group = group
        self._rows = torch.zeros(dist.get_world_size(group), width, dtype=torch.float64)
        self._own = torch.zeros(width, dtype=torch.float64)
        self._work: dist.Work | None = None

    def start(self, row: Sequence[float]) -> None:
        """Send this rank's row. Raises RuntimeError when a peer is lost."""
        self._own.copy_(torch.tensor(row, dtype=torch.float64))
        self._work = dist.all_gather(list(self._rows.unbind()), self._own, group=self._group, async_op=True)

    def finish(self) -> list[list[float]] | None:
        """The rows of all ranks, in rank order; None where none was started. Raises RuntimeError."""
        if self._work is None:
            return None
        self._work.wait()
        self._work = None
        return self._rows.tolist()
