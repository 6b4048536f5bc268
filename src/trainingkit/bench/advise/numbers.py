"""A situation from numbers alone: parameters, seconds of a step, the link; nothing of the job is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trainingkit.bench.advise.coding import Bench
from trainingkit.bench.advise.facts import Facts
from trainingkit.sync.auto.advice import Situation
from trainingkit.sync.auto.forecast import Link, Load, Window
from trainingkit.sync.auto.ladder import Rung, whole_ladder
from trainingkit.sync.buckets import Shape
from trainingkit.sync.bucketsize import bucket_mb

BACKWARD_SHARE = 2 / 3
"""Of forward and backward, which computes twice as much."""
SQUEEZED = "matrix"


@dataclass(frozen=True)
class Numbers:
    """What a person knows.

    Args:
        params: parameters of the model, all taken for matrices.
        step_s: seconds of a step without any exchange.
        backward_share: of the step, during which gradients become ready.
        bucket_mb: of fp32; None: as the trainer chooses it.
        code_here: time the codecs on this processor, and let computing lose what they take; else they cost nothing.
    """

    params: int
    step_s: float
    ranks: int
    link: Link
    backward_share: float = BACKWARD_SHARE
    bucket_mb: float | None = None
    code_here: bool = False


def facts_of(numbers: Numbers, rungs: Sequence[Rung] | None = None) -> Facts:
    """The situation that the numbers describe.

    Args:
        rungs: None: the whole ladder.
    """
    rungs = whole_ladder() if rungs is None else rungs
    elements = min(numbers.params, round(bucket_mb(numbers.params, numbers.bucket_mb) * (1 << 20) / 4))
    buckets = max(1, round(numbers.params / elements))
    shape = Shape((SQUEEZED,), {SQUEEZED: elements})
    bench = Bench.of(rungs, {SQUEEZED}, numbers.ranks)
    gradient = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    scale = numbers.params / elements
    loads = []
    for rung, load in zip(rungs, bench.loads([shape]), strict=True):
        code_s = scale * bench.code_s(rung, [shape], [gradient]) if numbers.code_here else 0.0
        loads.append(replace(_repeated(load, buckets, scale), code_s=code_s))
    shared = 1.0 if numbers.code_here else 0.0
    window = Window(numbers.step_s, numbers.step_s * numbers.backward_share, shared)
    situation = Situation(numbers.ranks, numbers.link, window, 0.0, tuple(loads), tuple(rungs))
    codecs = "timed on this processor" if numbers.code_here else "taken for free, as on a GPU"
    return Facts(situation, {"parameters": numbers.params, "buckets": buckets, "codecs": codecs, "link": "told"})


def _repeated(load: Load, buckets: int, scale: float) -> Load:
    """The load of one bucket as that of all, of as many bytes as `scale` of them."""
    return replace(load, bucket_bytes=(load.bucket_bytes[0] * scale / buckets,) * buckets)
