"""What is owed is paid at once: residuals are added to a bucket that travels dense, so that nothing waits for ever."""

from __future__ import annotations

import torch

from trainingkit.sync.bucketplan import Carried


def pay(carried: Carried, bucket: torch.Tensor, *, scale: float, factor: float, ranks: int, rank: int) -> None:
    """Add to this rank's gradients what it owes, so that the dense mean of all ranks holds what was pending in it.

    The mean takes a rank's gradients times `factor` / N, so an owner's answer, which belongs into the mean with the
    factor 1, is added N / `factor` times.

    Args:
        bucket: [elements] gradients, added to in place.
        scale: of the gradients; residuals are unscaled.
        factor: N w_r / W of this rank, not zero.
    """
    _add(bucket, carried, carried.residuals.own, first=0, times=scale)
    if carried.residuals.answer is not None:
        first = rank * carried.layout.shard
        _add(bucket, carried, carried.residuals.answer, first=first, times=scale * ranks / factor)


def _add(bucket: torch.Tensor, carried: Carried, owed: torch.Tensor, *, first: int, times: float) -> None:
    """bucket += owed x unit x times, where `owed` holds the part's elements from `first` on."""
    for stretch in carried.stretches:
        begin = max(stretch.in_part, first)
        end = min(stretch.in_part + stretch.elements, first + owed.numel())
        if begin >= end:
            continue
        values = owed[begin - first : end - first]
        if carried.moment is not None:
            values = values * carried.moment.unit[begin:end]
        at = stretch.in_bucket + begin - stretch.in_part
        bucket[at : at + end - begin].add_(values.to(bucket.device), alpha=times)
