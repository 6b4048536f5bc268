"""The command line inside the test's own process, for what needs no process of its own: quick, same code path."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainingkit import cli


@dataclass(frozen=True)
class Ended:
    """Exit code and output of one command."""

    code: int
    stdout: str
    stderr: str


class Command:
    """Callable: `command("train", "x.toml")` runs `trainingkit train x.toml`."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: object) -> Ended:
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(word) for word in arguments])
        code = ended.value.code
        assert isinstance(code, int) or code is None
        out, err = self._capfd.readouterr()
        return Ended(code or 0, out, err)
