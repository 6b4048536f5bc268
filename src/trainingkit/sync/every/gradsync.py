"""DistributedDataParallel's exchange of gradients: off while ranks train apart, and on again.

DDP takes backwards without an exchange for one long accumulation: a parameter that was used in any of them counts as
used in the next that exchanges, and DDP raises where that one has no gradient for it. So it is told to forget them.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def exchange_off(module: nn.Module) -> None:
    """Gradients stay on their rank. Other modules than a DistributedDataParallel exchange none anyway."""
    if isinstance(module, DistributedDataParallel):
        module.require_backward_grad_sync = False


def exchange_on(module: nn.Module) -> None:
    """Gradients travel from the next backward on. Called at a step's border, when the last backward is over."""
    if not isinstance(module, DistributedDataParallel):
        return
    module.require_backward_grad_sync = True
    if module.find_unused_parameters:
        module.reducer._reset_state()
