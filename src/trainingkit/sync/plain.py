"""Plain synchronisers: one process without any exchange, and PyTorch's DistributedDataParallel with no hook.

DDP multiplies by 1/N, then all-reduces in fp32. A ring all-reduce sends 2 (N-1)/N of the bytes from each rank.
DDP would rebuild its buckets after a process's first backward, and on three and more ranks sum in another order;
`find_unused_parameters=True` keeps the first layout (see docs/decisions/0001-foundation.md), which is made here. With
the vectors last it is another than that of a script's own DDP: on two ranks the sums are the same bits, on three and
more they may round differently.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainingkit.core.logging import LOG
from trainingkit.sync.bucketsize import bucket_mb as size_mb
from trainingkit.sync.bucketsize import trainable
from trainingkit.sync.contract import SyncStats
from trainingkit.sync.debt import Debt
from trainingkit.sync.residualstate import in_gradients, state_in

_NOISE = "find_unused_parameters=True was specified"


class SingleProcess:
    """No peers, no exchange: plain training, bit for bit. A state of several ranks is owed once, see `sync.debt`."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model
        self.weight = 1.0
        self.scaler: Any = None
        self._debt: Debt | None = None

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Nothing to hold back."""
        return contextlib.nullcontext()

    def begin(self) -> None:
        """Nothing to prepare."""

    def commit(self) -> SyncStats:
        """Nothing was sent."""
        return SyncStats()

    def abort(self) -> SyncStats:
        """Nothing is kept."""
        return SyncStats()

    def describe(self) -> dict[str, Any]:
        """Facts for the page."""
        return {"name": "one process", "fp32_bytes": 0}

    def stats(self) -> dict[str, Any]:
        """The same facts."""
        return self.describe()

    def detach(self) -> None:
        """Nothing is attached."""

    def close(self) -> None:
        """No threads."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep, but what is still owed from a run of several ranks."""
        return {"own": self._debt.owed(), "answer": {}} if self._debt is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What ranks still owed (see `sync.residualstate.redistribute`) is added to the next gradient, once."""
        if self._debt is not None:
            self._debt.forget()
        owed = in_gradients(state_in(state_dict))["own"]
        self._debt = Debt(self.module, owed) if owed else None


class PlainDDP:
    """DistributedDataParallel as it is given, without a hook: a script's own, or the trainer's (see `wrap`)."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        _quiet_ddp()
        self.module: nn.Module = ddp
        self._ddp = ddp
        self.weight = 1.0
        self.scaler: Any = None
        ranks = dist.get_world_size(group_of(ddp))
        dense_bytes = sum(p.numel() * p.element_size() for p in ddp.parameters() if p.requires_grad)
        self._step_bytes = round(2 * (ranks - 1) / ranks * dense_bytes)

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """All but the last micro-batch of a step accumulate locally (DDP's `no_sync`)."""
        return contextlib.nullcontext() if last else self._ddp.no_sync()

    def begin(self) -> None:
        """DDP prepares itself in forward."""

    def commit(self) -> SyncStats:
        """Bytes by the ring formula at the top of this file."""
        return SyncStats(wire_bytes=self._step_bytes)

    def abort(self) -> SyncStats:
        """Nothing is kept, but the bytes were sent."""
        return SyncStats(wire_bytes=self._step_bytes)

    def describe(self) -> dict[str, Any]:
        """Facts for the page."""
        return {"name": "plain DDP, fp32 wire", "fp32_bytes": self._step_bytes}

    def stats(self) -> dict[str, Any]:
        """The same facts: nothing is counted where there is no hook."""
        return self.describe()

    def detach(self) -> None:
        """Nothing is attached."""

    def close(self) -> None:
        """No threads of ours."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to restore; residuals of a squeezed run are dropped, and that is said."""
        if state_dict.get("own"):
            LOG.warning("the snapshot's residuals were dropped: plain DDP has no use for them")


def group_of(ddp: DistributedDataParallel) -> dist.ProcessGroup:
    """The process group that DDP reduces over."""
    group = ddp.process_group
    assert isinstance(group, dist.ProcessGroup)
    return group


def wrap(model: nn.Module, group: dist.ProcessGroup, *, bucket_mb: float | None) -> DistributedDataParallel:
    """The model in DDP, with buckets that keep their first layout (see the top of this file), vectors in the last ones.

    Buffers are not broadcast in forward: the trainer aligns them when a step begins, where waiting shows as a stall.
    """
    _quiet_ddp()
    return _VectorsLast(
        model,
        process_group=group,
        bucket_cap_mb=size_mb(trainable(model), bucket_mb),
        broadcast_buffers=False,
        find_unused_parameters=True,
    )


class _VectorsLast(DistributedDataParallel):
    """DDP whose last buckets hold the vectors (norms, biases).

    DDP fills buckets in the reverse order of the parameters. A layer's norms are often registered last and get their
    gradients last: buckets that hold them become ready a whole layer at a time, and those of the last layer cannot
    hide behind backward.
    """

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, expect_sparse = super()._build_params_for_reducer()
        order = sorted(range(len(parameters)), key=lambda index: parameters[index].dim() > 1)
        return [parameters[index] for index in order], [expect_sparse[index] for index in order]


class _NoUnusedNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return _NOISE not in record.getMessage()


def _quiet_ddp() -> None:
    logging.getLogger("torch.nn.parallel.distributed").addFilter(_NoUnusedNoise())
