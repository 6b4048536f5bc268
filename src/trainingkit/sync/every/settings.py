"""The settings of `every(...)`: how often workers meet, when a round is applied, and the outer step."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section

AUTO = "auto"
"""The exchange by the number of ranks and their islands."""


class Every(Section):
    """Settings of training apart.

    Args:
        steps: H, from one round to the next.
        delay: 1: a round is applied when the next one starts, so that no step waits for it.
        tau: a round is applied so many steps after its start; 0: at once, which waits for the wire.
        fragments: the layers are dealt into so many parts, whose rounds start H / fragments steps apart.
        outer_lr: rate of the outer step; 1 with no momentum takes the mean of the workers.
        outer_momentum: of the outer step.
        nesterov: look ahead, as torch.optim.SGD does.
        decay: of what a round leaves for the next one (error feedback); what decays is lost, and counted.
        embeddings: embeddings and the head travel in the codec, too, instead of bf16.
        exchange: name of an exchange; "auto": by the number of ranks.
    """

    steps: int = Field(ge=1)
    delay: int = Field(default=0, ge=0, le=1)
    tau: int = Field(default=0, ge=0)
    fragments: int = Field(default=1, ge=1)
    outer_lr: float = Field(default=1.0, gt=0)
    outer_momentum: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    decay: float = Field(default=1.0, gt=0, le=1)
    embeddings: bool = False
    exchange: str = AUTO

    @property
    def lag(self) -> int:
        """Steps from the start of a round until it is applied."""
        return self.steps if self.delay else self.tau

    @property
    def is_mean(self) -> bool:
        """Whether the outer step takes the mean of the workers as it is."""
        return self.outer_lr == 1.0 and self.outer_momentum == 0.0

    def offset(self, fragment: int) -> int:
        """Rounds of a fragment start after steps that leave this when they are divided by H."""
        return fragment * self.steps // self.fragments

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for wrong, problem, name, expected, remedy in (
            (
                self.delay and self.tau,
                "A round is either delayed to the next one or by a number of steps.",
                "tau",
                "either delay=1 or tau=...",
                "Remove one of them.",
            ),
            (
                self.tau > self.steps,
                "A round must be applied before the next one starts.",
                "tau",
                f"at most {self.steps}, the steps between two rounds",
                "Lower tau, or raise the steps.",
            ),
            (
                self.fragments > self.steps,
                "There are more fragments than steps between two rounds.",
                "fragments",
                f"at most {self.steps}, so that each has a step of its own",
                "Lower fragments, or raise the steps.",
            ),
            (
                self.nesterov and not self.outer_momentum,
                "Nesterov looks ahead along the momentum, and there is none.",
                "nesterov",
                "outer_momentum above 0, for example 0.9",
                "Set outer_momentum, or remove nesterov.",
            ),
        ):
            if wrong:
                raise ValueError(problem) from _refused(problem, name, getattr(self, name), expected, remedy)
        return self


def _refused(problem: str, name: str, found: Any, expected: str, remedy: str) -> ConfigError:
    return ConfigError(problem, field=f"every.{name}", found=found, expected=expected, next_step=remedy)
