"""The codecs of the package, by real messages: `trainingkit.codec.Codec` encodes and decodes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from trainingkit.bench.frontier.coders.form import Key
from trainingkit.codec import Codec


@dataclass(frozen=True)
class PackageForm:
    """A codec's spec as a form.

    Args:
        spec: for example "all|int4(block=64)".
    """

    spec: str

    def bits(self, n: int) -> float:
        """Of the bytes that are really sent.

        Raises:
            ConfigError: the spec cannot be read.
        """
        return 8.0 * _codec(self.spec).message_bytes(n)

    def said(self, y: Tensor, key: Key) -> Tensor:
        """Encoded and decoded; NaN where a message has values that are not finite."""
        codec = _codec(self.spec)
        message = torch.empty(codec.message_bytes(y.shape[1]), dtype=torch.uint8)
        said = torch.empty_like(y)
        for values, out in zip(y, said, strict=True):
            if codec.encode(values.contiguous(), None, message, None):
                codec.decode(message, out)
            else:
                out.fill_(torch.nan)
        return said


@functools.cache
def _codec(spec: str) -> Codec:
    return Codec(spec)
