"""Muon for matrices and AdamW for the rest as one optimizer: torch's own two updates over one list of groups.

Muon (K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024) replaces the momentum B [a, b]
of a matrix by about U V^T of its singular value decomposition U S V^T: five Newton-Schulz iterations in bf16, each
4 min(a, b)^2 max(a, b) + 2 min(a, b)^3 flops. It keeps 4 bytes a parameter, AdamW 8.

With `block_rows` a matrix is orthogonalised in blocks of its rows, each by itself: of [384, 1024] in blocks of 128, a
third of the flops (after A. Khaled et al., "MuonBP: Faster Muon via Block-Periodic Orthogonalization", 2025, here
without its periodic whole update). A row of an update is as long either way.

Ranks that start with the same bits and step on the same gradients stay the same bits only where they multiply bf16
matrices alike: the same kind of processor, the same number of threads and the same torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

Group = dict[str, Any]
MOMENTUM = "momentum_buffer"
"""Under which Muon's state has it."""


class MuonAdamW(Optimizer):
    """One `state`, one `param_groups`, one `step`; what each group is stepped by stands in its `algorithm`.

    State and groups are those that torch's Muon and AdamW make, so that schedules, GradScaler, snapshots and hooks see
    an ordinary optimizer. A weight of more than two dimensions is shown to Muon as [out, the rest]; its
    `momentum_buffer` has that shape. Hooks that torch registers for all optimizers also see the two inside.

    Args:
        groups: each with `params`, `algorithm` ("muon" or "adamw"), and that algorithm's settings as torch names
            them; what is missing is torch's default.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        super().__init__(groups, {})

    def add_param_group(self, param_group: Group) -> None:
        """One more group; settings it does not name are the defaults of the torch optimizer that will step it."""
        group = {**param_group, "params": list(param_group["params"])}
        made = _MAKERS[group["algorithm"]](dict(group))
        super().add_param_group({**made.defaults, **group})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns what `closure` gave.

        Args:
            closure: computes the loss and the gradients anew.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_matrices(self._groups_of("muon"))
        self._step_rest(self._groups_of("adamw"))
        return loss

    def _groups_of(self, algorithm: str) -> list[Group]:
        return [dict(group) for group in self.param_groups if group["algorithm"] == algorithm]

    def _step_matrices(self, groups: list[Group]) -> None:
        """Muon takes each parameter's matrix, or blocks of its rows; the momentum is the parameter's own, and whole."""
        pairs: list[tuple[Tensor, Tensor]] = []
        state: dict[Tensor, dict[str, Tensor]] = {}
        for group in groups:
            shown = [(parameter, _matrix(parameter)) for parameter in group["params"] if parameter.grad is not None]
            rows = group.get("block_rows")
            found = [block for parameter, matrix in shown for block in _blocks(matrix, self.state[parameter], rows)]
            group["params"] = [block for block, _ in found]
            state.update(found)
            pairs += shown
        if not pairs:
            return
        muon = Muon(groups)
        muon.state.update(state)
        muon.step()
        for parameter, matrix in pairs:
            if matrix.data_ptr() != parameter.data_ptr():
                parameter.copy_(matrix.view(parameter.shape))

    def _step_rest(self, groups: list[Group]) -> None:
        if groups:
            adamw = AdamW(groups)
            adamw.state = self.state
            adamw.step()


def _matrix(parameter: Tensor) -> Tensor:
    """The parameter as [out, rest] with its gradient: in the same memory, or a copy where its layout forbids that."""
    assert parameter.grad is not None
    matrix = parameter.detach().flatten(1)
    matrix.grad = parameter.grad.detach().flatten(1)
    return matrix


def _blocks(matrix: Tensor, state: dict[str, Tensor], rows: int | None) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Blocks of the matrix's rows with their gradients, each beside the same rows of the parameter's momentum."""
    assert matrix.grad is not None
    if rows is None or rows >= len(matrix):
        return [(matrix, state)]
    if MOMENTUM not in state:
        state[MOMENTUM] = torch.zeros_like(matrix.grad)
    parts = zip(matrix.split(rows), matrix.grad.split(rows), state[MOMENTUM].split(rows), strict=True)
    found = []
    for block, gradient, momentum in parts:
        block.grad = gradient
        found.append((block, {MOMENTUM: momentum}))
    return found


def _muon(group: Group) -> Muon:
    return Muon([{**group, "params": [parameter.detach().flatten(1) for parameter in group["params"]]}])


def _adamw(group: Group) -> AdamW:
    return AdamW([group])


_MAKERS: dict[str, Callable[[Group], Optimizer]] = {"muon": _muon, "adamw": _adamw}
