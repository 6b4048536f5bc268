"""AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), torch's own, fused.

Costs 8 bytes a parameter for the two moments. Matrices decay; vectors (norms, biases) do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainingkit.optim.registry import OPTIMIZERS, OptimizerSection

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import AdamW


@OPTIMIZERS.register("adamw")
class AdamWSection(OptimizerSection):
    """Settings of AdamW."""

    lr: float = Field(default=3e-3, gt=0, description="peak learning rate")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the gradient's mean")
    beta2: float = Field(default=0.95, ge=0, lt=1, description="decay of the squared gradient's mean")
    eps: float = Field(default=1e-8, gt=0, description="added to the denominator")
    weight_decay: float = Field(default=0.1, ge=0, description="decay of matrices")

    def build(self, model: nn.Module) -> AdamW:
        """AdamW over two groups: tensors of two and more dimensions, and the rest without decay."""
        from torch.optim import AdamW

        trainable = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        return AdamW(groups, lr=self.lr, betas=(self.beta1, self.beta2), eps=self.eps, fused=True)
