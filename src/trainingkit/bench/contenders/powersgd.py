"""PyTorch's PowerSGD hook (Vogels et al., "PowerSGD", NeurIPS 2019), ranks 2 and 4, with error feedback and warm start.

With several buckets it aborts on Gloo: each chains three collectives in future callbacks, and their order may differ
between ranks. So there is one bucket here, which leaves nothing to overlap with backward.
"""

from __future__ import annotations

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from trainingkit.bench.contender import CONTENDERS, Contender, Setting, data_parallel, dense_bytes, ring_bytes

ONE_BUCKET_MB = 1000
DENSE_STEPS = 2
"""The fewest that the hook allows."""


@CONTENDERS.register("powersgd-2")
def rank_2(model: nn.Module, setting: Setting) -> Contender:
    """Rank 2."""
    return _build(model, setting, rank=2)


@CONTENDERS.register("powersgd-4")
def rank_4(model: nn.Module, setting: Setting) -> Contender:
    """Rank 4."""
    return _build(model, setting, rank=4)


def _build(model: nn.Module, setting: Setting, *, rank: int) -> Contender:
    ddp = data_parallel(model, setting.group, bucket_cap_mb=ONE_BUCKET_MB, gradient_as_bucket_view=False)
    state = PowerSGDState(setting.group, matrix_approximation_rank=rank, start_powerSGD_iter=DENSE_STEPS)
    ddp.register_comm_hook(state, powerSGD_hook)
    return Contender(f"PowerSGD rank {rank}", ddp, finish=_Said(state, dense_bytes(model), setting.ranks))


class _Said:
    """Bytes of the last step by the hook's own statistics; before it compresses, those of a plain step."""

    def __init__(self, state: PowerSGDState, plain_bytes: int, ranks: int) -> None:
        self._state = state
        self._plain_bytes = plain_bytes
        self._ranks = ranks
        self._elements = 0

    def __call__(self) -> int:
        new = self._state.total_numel_after_compression - self._elements
        self._elements += new
        return ring_bytes(4 * new if new else self._plain_bytes, self._ranks)
