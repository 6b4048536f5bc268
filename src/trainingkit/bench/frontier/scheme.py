"""A scheme of the frontier bench: which coder, on the gradient or the update, how often, with what residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainingkit.bench.frontier.coder import Coder

Side = Literal["gradient", "update"]
OptimizerName = Literal["adamw", "muon"]
ResidualName = Literal["fp32", "bf16", "int8"]


@dataclass(frozen=True)
class Scheme:
    """One way to train with fewer bits.

    Attributes:
        name: short, unique; what `--schemes` takes.
        label: what tables and plots show.
        side: whether the workers agree on the gradient, before the optimizer, or on the update, after it.
        coder: makes the coder of one run.
        optimizer: of the shared optimizer (gradient side) or of each worker's own (update side).
        every: update side only: local steps between exchanges.
        decay: what the residual is multiplied by when it is stored.
        residual: the format that the residual is stored in.
        warmup: (share of the run, coder) in order: until that share of the run is over, that coder is used.
        momentum_correction: factor of the local momentum that is accumulated before coding (DGC); 0 is none.
        preset: after a published setting, with differences, which the notes of the summary name.
        in_package: it runs through the package's own codec, by `spec`.
        spec: the codec's spec text where `in_package`.
        tasks: names of the tasks that it is compared on.
        revision: raised when what this scheme alone computes changes, so that its kept runs are done again.
    """

    name: str
    label: str
    side: Side
    coder: Callable[[], Coder]
    optimizer: OptimizerName = "adamw"
    every: int = 1
    decay: float = 1.0
    residual: ResidualName = "fp32"
    warmup: tuple[tuple[float, Callable[[], Coder]], ...] = ()
    momentum_correction: float = 0.0
    preset: bool = False
    in_package: bool = False
    spec: str = ""
    tasks: tuple[str, ...] = ("decoder", "resnet", "bert")
    revision: int = 0
