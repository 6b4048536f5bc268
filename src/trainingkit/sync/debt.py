"""What several ranks still owed when one goes on alone: added to the next gradient once, so that nothing is lost.

A parameter's share is added when its next gradient is there, whatever the loop looks like: with accumulation, to the
first micro-batch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainingkit.core.errors import CheckpointError
from trainingkit.core.logging import LOG
from trainingkit.sync.exempt import parameter_names


class Debt:
    """Residuals by parameter name, to be paid once.

    Args:
        model: the model, or its DistributedDataParallel.
        own: name -> [elements] fp32, in the parameter's storage order.

    Raises:
        CheckpointError: a name or a size that the model does not have.
    """

    def __init__(self, model: nn.Module, own: Mapping[str, torch.Tensor]) -> None:
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        parameters = {name: parameter for parameter, name in parameter_names(inner).items()}
        for name, residual in own.items():
            _check(name, residual, parameters.get(name))
        self._own = dict(own)
        self._handles = {
            name: parameters[name].register_post_accumulate_grad_hook(self._payer(name))
            for name in own
            if parameters[name].requires_grad
        }
        LOG.info("one rank goes on alone: what %d parameters were still owed joins their next gradient", len(own))

    def owed(self) -> dict[str, torch.Tensor]:
        """What has not been paid yet."""
        return {name: residual.clone() for name, residual in self._own.items()}

    def forget(self) -> None:
        """Pay nothing more."""
        for handle in self._handles.values():
            handle.remove()
        self._handles, self._own = {}, {}

    def _payer(self, name: str) -> Callable[[torch.Tensor], None]:
        def pay(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            share = torch.empty_like(parameter.grad, dtype=torch.float32)
            share.as_strided((share.numel(),), (1,)).copy_(self._own.pop(name))
            parameter.grad.add_(share)
            self._handles.pop(name).remove()

        return pay


def _check(name: str, residual: torch.Tensor, parameter: nn.Parameter | None) -> None:
    if parameter is not None and parameter.numel() == residual.numel():
        return
    raise CheckpointError(
        "A residual in the snapshot does not fit the model.",
        field=f"sync.own.{name}",
        found=f"{residual.numel()} elements",
        expected=f"{parameter.numel()} elements" if parameter is not None else "no such parameter",
        next_step="Resume with the model that made the snapshot.",
    )
