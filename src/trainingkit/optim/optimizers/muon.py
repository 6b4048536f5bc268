"""Muon for hidden matrices (K. Jordan et al., 2024), AdamW for embeddings, the head and vectors; both torch's own.

Defaults are Jordan's (rate 0.02, momentum 0.95 with Nesterov's look-ahead, five iterations), and for the rest those of
`adamw`. With `adjust_lr_fn = "match_rms_adamw"` (Liu et al., "Muon is Scalable for LLM Training", 2025) an update is as
large as AdamW's, so that `muon_lr` can be AdamW's rate.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from trainingkit.core.errors import ConfigError
from trainingkit.core.logging import LOG
from trainingkit.optim.registry import OPTIMIZERS, OptimizerSection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from trainingkit.optim.muon_adamw import MuonAdamW


@OPTIMIZERS.register("muon")
class MuonSection(OptimizerSection):
    """Settings of Muon, and of AdamW for what is no hidden matrix."""

    lr: float = Field(default=3e-3, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(default=2e-2, gt=0, description="peak learning rate of Muon")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="decay of Muon's momentum")
    nesterov: bool = Field(default=True, description="Muon's momentum looks one step ahead")
    ns_steps: int = Field(default=5, ge=1, lt=100, description="Newton-Schulz iterations")
    block_rows: int | None = Field(
        default=None, ge=1, description="rows of a matrix that are orthogonalised together; not given: all"
    )
    adjust_lr_fn: Literal["original", "match_rms_adamw"] = Field(
        default="original", description="how Muon's rate follows from a matrix's shape"
    )
    beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW: decay of the gradient's mean")
    beta2: float = Field(default=0.95, ge=0, lt=1, description="AdamW: decay of the squared gradient's mean")
    eps: float = Field(default=1e-8, gt=0, description="AdamW: added to the denominator")
    weight_decay: float = Field(default=0.1, ge=0, description="decay of matrices, in both")

    def build(self, model: nn.Module) -> MuonAdamW:
        """Three groups: hidden matrices by Muon; by AdamW the rest of two and more dimensions, and vectors undecayed.

        Raises:
            ConfigError: a hidden matrix is sharded (a DTensor).
        """
        from trainingkit.optim.hidden import hidden_matrices
        from trainingkit.optim.muon_adamw import MuonAdamW

        matrices = hidden_matrices(model)
        _check_whole(matrices)
        if not matrices:
            LOG.warning("optimizer muon: the model has no hidden matrix, so AdamW steps all of it")
        taken = {id(parameter) for parameter in matrices}
        rest = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
        groups = [
            {"params": matrices, **self._muon()},
            {"params": [p for p in rest if p.dim() >= 2], **self._adamw(self.weight_decay)},
            {"params": [p for p in rest if p.dim() < 2], **self._adamw(0.0)},
        ]
        return MuonAdamW([group for group in groups if group["params"]])

    def _muon(self) -> dict[str, Any]:
        return {
            "algorithm": "muon",
            "lr": self.muon_lr,
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "ns_steps": self.ns_steps,
            "block_rows": self.block_rows,
            "adjust_lr_fn": self.adjust_lr_fn,
            "weight_decay": self.weight_decay,
        }

    def _adamw(self, weight_decay: float) -> dict[str, Any]:
        return {
            "algorithm": "adamw",
            "lr": self.lr,
            "betas": (self.beta1, self.beta2),
            "eps": self.eps,
            "weight_decay": weight_decay,
            "fused": True,
        }


def _check_whole(matrices: Iterable[nn.Parameter]) -> None:
    """Torch's Muon multiplies a sharded matrix in another order in bf16, which is another update."""
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None or not any(isinstance(matrix, tensors.DTensor) for matrix in matrices):
        return
    raise ConfigError(
        "Muon needs whole matrices, and this model's are sharded.",
        field="optimizer.kind",
        found="'muon', with parameters that are DTensors",
        expected="parameters that are whole on each rank, as under DistributedDataParallel",
        next_step="Set optimizer.kind = 'adamw', or do not shard the model.",
    )
