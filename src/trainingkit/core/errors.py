"""Errors for people: each says what was wrong, which field, what was found, what was expected, what to do next.

`exit_code` is what the command line ends with when the error reaches it (see `trainingkit.core.exitcodes`).
`assert` is kept for our own bugs.
"""

from __future__ import annotations

from typing import Any

from trainingkit.core.exitcodes import BAD_INPUT, FAILED


class TrainingKitError(Exception):
    """Base of all errors that a person can act on.

    Args:
        problem: one sentence, what is wrong.
        field: the setting, file or argument concerned, for example `data.path`.
        found: the value that was seen.
        expected: what would have been accepted.
        next_step: what the reader should do now.
    """

    exit_code = FAILED

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        found: Any = None,
        expected: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.problem = problem
        self.field = field
        self.found = found
        self.expected = expected
        self.next_step = next_step
        super().__init__(self.text())

    def text(self) -> str:
        """The whole message: the problem, then one indented line per known detail."""
        lines = [self.problem]
        details = (
            ("field", self.field),
            ("found", self.found),
            ("expected", self.expected),
            ("next step", self.next_step),
        )
        for label, value in details:
            if value is not None:
                lines.append(f"  {label + ':':<11}{value}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.problem, self.field, self.found, self.expected, self.next_step))


def _rebuild(
    kind: type[TrainingKitError],
    problem: str,
    field: str | None,
    found: Any,
    expected: str | None,
    next_step: str | None,
) -> TrainingKitError:
    return kind(problem, field=field, found=found, expected=expected, next_step=next_step)


class ConfigError(TrainingKitError):
    """A recipe, an option or an argument cannot be used as written."""

    exit_code = BAD_INPUT


class DataError(TrainingKitError):
    """Data is missing, empty, damaged or of the wrong kind."""

    exit_code = BAD_INPUT


class ModelError(TrainingKitError):
    """A model cannot be built, loaded or exported."""

    exit_code = BAD_INPUT


class ClusterError(TrainingKitError):
    """Workers cannot be started, or cannot find each other."""


class RunFolderError(TrainingKitError):
    """A run folder is missing, not writable, or not what it should be."""

    exit_code = BAD_INPUT


class CheckpointError(TrainingKitError):
    """A snapshot cannot be written, or none that is whole can be read."""


class PeerLost(TrainingKitError):
    """Another rank is gone: the exchange with it failed. Never the first cause; look at the other rank."""


class StepError(TrainingKitError):
    """A step could not be taken: the model, the loss or the user's code raised."""
