"""Sparse forms: which values of a message are sent, and in which form those are.

Exactly `keep` of each row are sent, the largest, equals by lowest index; the others count as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import Form, Key, by_rows, row_bits
from trainingkit.bench.frontier.coders.indices import index_bits


def kept(density: float, length: int) -> int:
    """How many of `length` are sent: at least one."""
    return max(1, round(density * length))


def largest(size: Tensor, keep: int) -> Tensor:
    """[..., length] bool - exactly `keep` true in each row: the largest sizes, equals by lowest index.

    Args:
        size: [..., length] fp32, finite.
    """
    length = size.shape[-1]
    bar = torch.from_numpy(np.partition(size.numpy(), length - keep, axis=-1)[..., length - keep]).unsqueeze(-1)
    chosen = size >= bar
    if int(chosen.sum()) == keep * (size.numel() // length):
        return chosen
    above, equal = size > bar, size == bar
    room = keep - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))


@dataclass(frozen=True)
class TopK:
    """The values of largest magnitude in each chunk.

    Args:
        density: share that is sent.
        form: of what is sent, chunk after chunk.
        chunk: values of a chunk; a shorter rest is a chunk of its own.
        group: values that are chosen together, by energy, and share an index; divides the chunk.
    """

    density: float
    form: Form
    chunk: int = 4096
    group: int = 1

    def bits(self, n: int) -> float:
        """Those of the values sent, and of their indices."""
        sent = row_bits(n, self.chunk, self._sent)
        return self.form.bits(int(sent)) + row_bits(n, self.chunk, self._index_bits)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The form's values where chosen, zero elsewhere."""
        places = by_rows(y, self.chunk, self._choose).flatten().nonzero().squeeze(1)
        values = self.form.said(y.flatten()[places].view(len(y), -1), key)
        return torch.zeros(y.numel()).index_copy_(0, places, values.flatten()).view(y.shape)

    def _choose(self, rows: Tensor) -> Tensor:
        """[m, rows, length] bool."""
        group = self._group(rows.shape[-1])
        size = rows.abs() if group == 1 else rows.unflatten(-1, (-1, group)).square().sum(-1)
        chosen = largest(size, kept(self.density, size.shape[-1]))
        return chosen if group == 1 else chosen.repeat_interleave(group, -1)

    def _group(self, length: int) -> int:
        return self.group if length % self.group == 0 else 1

    def _sent(self, length: int) -> float:
        group = self._group(length)
        return float(group * kept(self.density, length // group))

    def _index_bits(self, length: int) -> float:
        groups = length // self._group(length)
        return float(index_bits(kept(self.density, groups), groups))


@dataclass(frozen=True)
class RandomK:
    """Values at random places, the same for all by a shared seed: no indices are sent (Wangni et al., NeurIPS 2018).

    Args:
        density: share that is sent.
        form: of what is sent.
    """

    density: float
    form: Form

    def bits(self, n: int) -> float:
        """Those of the values sent."""
        return self.form.bits(kept(self.density, n))

    def said(self, y: Tensor, key: Key) -> Tensor:
        """The form's values where chosen, zero elsewhere."""
        n = y.shape[1]
        places = torch.randperm(n, generator=key.shared("places"))[: kept(self.density, n)].sort().values
        said = torch.zeros_like(y)
        said[:, places] = self.form.said(y[:, places], key)
        return said
