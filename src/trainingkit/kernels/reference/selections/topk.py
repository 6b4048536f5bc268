"""`topk`: the largest magnitudes of each row; among equals the lowest index; what is not finite ranks above all, equal.

Deep Gradient Compression (Lin et al., ICLR 2018, arXiv:1712.01887) keeps the largest of a whole tensor; here each row
(a chunk) keeps the same number, so that sizes are known beforehand and any chunk can be addressed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainingkit.kernels.reference.selections import SELECTIONS


@SELECTIONS.register("topk")
def select_topk(y: Tensor, keep: int) -> Tensor:
    """[rows, keep] int64 - ascending indices. A stable sort, so that equals stay in order."""
    magnitude = torch.where(y.isfinite(), y.abs(), torch.inf)
    order = magnitude.argsort(dim=1, descending=True, stable=True)
    return order[:, :keep].sort(dim=1).values
