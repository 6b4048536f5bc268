"""A collective that was started, held until somebody waits for it."""

from __future__ import annotations

from typing import Protocol


class Waitable(Protocol):
    """A collective under way: `torch.distributed.Work`, or what stands for it within one process."""

    def wait(self) -> object:
        """Until the data are there."""
        ...


class Pending:
    """Keeps the Work, and so its buffers, alive until `wait` (nanochat issue 843: freed early means torn data)."""

    def __init__(self, work: Waitable) -> None:
        self._work: Waitable | None = work

    def wait(self) -> None:
        """Until the data are there. Raises RuntimeError when a peer is lost."""
        assert self._work is not None
        self._work.wait()
        self._work = None
