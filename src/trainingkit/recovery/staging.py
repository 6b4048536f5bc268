"""Copies of tensors that training may go on changing: one kept CPU buffer per name, reused from save to save."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Staging:
    """Buffers for one rank's tensors. CPU buffers of CUDA tensors are pinned, so that the copies overlap."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies by name: contiguous, on the CPU, each with storage of its own, bit for bit.

        They are valid until the next call, which overwrites them. Buffers of names that are gone are freed.
        """
        self._buffers = {name: self._buffer_for(name, tensor) for name, tensor in tensors.items()}
        with torch.no_grad():
            for name, tensor in tensors.items():
                self._buffers[name].copy_(tensor, non_blocking=True)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        return dict(self._buffers)

    def _buffer_for(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._buffers.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
