"""What a rank owes of shards that it does not carry: after a state of another exchange was loaded, until it is paid."""

from __future__ import annotations

import torch

from trainingkit.exchange.parts import Residuals


class Inherited:
    """The residuals of one part outside of this rank's own range, in both twins.

    A twin that may hold something there is remembered by its memory, because a commit swaps the two behind our back.

    Args:
        residuals: `own` [padded] fp32 and its twin.
        own_range: what this rank carries itself; its residuals are the codec's business.
    """

    def __init__(self, residuals: Residuals, own_range: slice) -> None:
        self._residuals = residuals
        self._range = own_range
        self._holders: set[int] = set()
        if any(bool(each.any()) for each in self._outside(residuals.own)):
            self._holders.add(residuals.own.data_ptr())
        self._clear(residuals.own_next)

    def add_to(self, rows: torch.Tensor) -> None:
        """Add what is owed to [rows, range] fp32 values, before a round."""
        if self._owes:
            owed = self._residuals.own.view(rows.shape)
            carried = self._range.start // rows.shape[1]
            for row in range(len(rows)):
                if row != carried:
                    rows[row].add_(owed[row])

    def settle(self, *, paid: bool) -> None:
        """Write the twin: nothing is owed any more; or, where this rank's values did not count, the same as before."""
        twin = self._residuals.own_next
        if self._owes and not paid:
            for new, old in zip(self._outside(twin), self._outside(self._residuals.own), strict=True):
                new.copy_(old)
            self._holders.add(twin.data_ptr())
        elif twin.data_ptr() in self._holders:
            self._clear(twin)

    @property
    def _owes(self) -> bool:
        return self._residuals.own.data_ptr() in self._holders

    def _clear(self, twin: torch.Tensor) -> None:
        for each in self._outside(twin):
            each.zero_()
        self._holders.discard(twin.data_ptr())

    def _outside(self, twin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return twin[: self._range.start], twin[self._range.stop :]
