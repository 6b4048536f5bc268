"""The run folder that a command names, or a refusal that tells which runs lie near."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainingkit.core.errors import RunFolderError
from trainingkit.core.runfolder import RunFolder

SHOWN = 3
"""How many runs a refusal names."""


def run_folder(path: Path) -> RunFolder:
    """The run at `path`.

    Raises:
        RunFolderError: there is none; it names the newest runs near it.
    """
    run = RunFolder(path.resolve())
    if run.recipe.is_file():
        return run
    raise RunFolderError(
        f"This is not a run folder: it {'holds no recipe.toml' if path.exists() else 'does not exist'}.",
        field="RUN",
        found=str(run.root),
        expected="a folder that `trainingkit train` made",
        next_step=_near(run.root),
    )


def _near(folder: Path) -> str:
    runs = sorted(set(_runs(folder)), key=lambda run: run.stat().st_mtime, reverse=True)
    if not runs:
        return (
            "Look where `trainingkit train` was started: runs lie in its runs/, or where run.folder said. "
            "To search: find ~ -name recipe.toml"
        )
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    return f"Runs near it, newest first: {', '.join(str(run) for run in runs[:SHOWN])}{more}"


def _runs(folder: Path) -> Iterator[Path]:
    """Runs in the folder, beside it, in its runs/, and in the runs/ below the present folder."""
    for parent in (folder, folder.parent, folder / "runs", Path.cwd() / "runs"):
        for recipe in parent.glob("*/recipe.toml"):
            yield recipe.parent
