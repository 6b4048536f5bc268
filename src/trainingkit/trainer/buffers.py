"""A model's buffers over a step: rank 0's on all ranks when it begins, put back when it is given up.

DDP would align them inside forward, where waiting for a late rank looks like computing; here it is timed as a stall.
Only persistent buffers are aligned: those that a snapshot keeps. The others (masks, rotary tables) are constants.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _broadcast_coalesced

from trainingkit.sync.control import peers_watched

BROADCAST_BYTES = 1 << 25


class ModelBuffers:
    """The buffers of one model.

    Args:
        group: ranks that hold the model; None for a single process.
    """

    def __init__(self, model: nn.Module, group: dist.ProcessGroup | None) -> None:
        self._model = model
        self._group = group
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        self._persistent = set(model.state_dict()) - parameters
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def persistent(self) -> dict[str, torch.Tensor]:
        """Live persistent buffers by name."""
        return {name: b.detach() for name, b in self._model.named_buffers() if name in self._persistent}

    def align(self) -> None:
        """Rank 0's persistent buffers on all ranks. All ranks call it.

        Raises:
            PeerLost: a peer is gone.
        """
        buffers = list(self.persistent().values())
        if self._group is not None and buffers:
            with peers_watched():
                _broadcast_coalesced(self._group, buffers, BROADCAST_BYTES, 0)

    def remember(self) -> None:
        """Keep a copy of all buffers."""
        self._before = [(buffer, buffer.clone()) for buffer in self._model.buffers()]

    def put_back(self) -> None:
        """All buffers as they were remembered."""
        with torch.no_grad():
            for buffer, before in self._before:
                buffer.copy_(before)

    def forget(self) -> None:
        """Free the copies."""
        self._before = []
