"""The control lane: one tiny all-reduce a step that agrees on what all ranks must do alike.

Started when a step begins and awaited when it ends, so that its latency hides behind the step. It has a Gloo group
of its own; a failure means that a peer is lost, and then no further collective is tried.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from trainingkit.core.errors import PeerLost


class ControlLane:
    """Sums a few float64 over ranks, one step at a time. Without a group it echoes its own values.

    Args:
        group: a Gloo group used by nobody else.
        width: how many values.
    """

    def __init__(self, group: dist.ProcessGroup | None, width: int) -> None:
        self._group = group
        self._values = torch.zeros(width, dtype=torch.float64)
        self._work: dist.Work | None = None

    def start(self, values: list[float]) -> None:
        """Offer this rank's values for the step that begins.

        Raises:
            PeerLost: a peer is gone.
        """
        self._values.copy_(torch.tensor(values, dtype=torch.float64))
        if self._group is not None:
            with peers_watched():
                self._work = dist.all_reduce(self._values, group=self._group, async_op=True)

    def finish(self) -> list[float]:
        """The sums over all ranks of what was offered.

        Raises:
            PeerLost: a peer is gone.
        """
        if self._work is not None:
            with peers_watched():
                self._work.wait()
            self._work = None
        return self._values.tolist()


class peers_watched:
    """Context that turns an error of a collective into PeerLost, and leaves all other errors alone."""

    MARKS = (
        "gloo",
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Timed out waiting",
        "NCCL",
    )

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RuntimeError) and any(mark in str(error) for mark in self.MARKS):
            first = str(error).splitlines()[0]
            raise PeerLost(
                "The exchange with another rank failed: that rank, or the way to it, is gone.",
                found=first[:300],
                next_step="Look at the other ranks' logs for the first cause. Then go on: `trainingkit resume RUN`, or "
                "for a script of your own, start it again (where it attaches, with the same run.folder).",
            ) from error
