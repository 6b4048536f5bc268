"""The wheel holds what the project needs, and works where no checkout is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("src", "recipes", "pyproject.toml", "README.md", "LICENSE")


def _run(command: list[str], cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"], copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    _run([*pip, "--target", str(folder), str(wheel)], folder)
    return folder


def test_every_file_of_the_package_is_inside_and_nothing_else(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = ROOT / "src" / "trainingkit"
    files = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name}
    expected |= {f"trainingkit/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.toml")}
    assert inside == expected
    assert "trainingkit/report/templates/page.html" in inside


def test_licence_is_inside(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()


def test_import_and_help_work_from_the_wheel(site: Path, tmp_path: Path) -> None:
    found = _run(
        [sys.executable, "-c", "import trainingkit; print(trainingkit.__file__)"], tmp_path, PYTHONPATH=str(site)
    )
    assert Path(found.strip()).is_relative_to(site)
    text = _run([sys.executable, "-m", "trainingkit", "--help"], tmp_path, PYTHONPATH=str(site))
    assert "train" in text
    assert "resume" in text


def test_recipes_are_found_from_the_wheel(site: Path, tmp_path: Path) -> None:
    text = _run([sys.executable, "-m", "trainingkit", "train", "--dry-run"], tmp_path, PYTHONPATH=str(site))
    assert "model" in text
