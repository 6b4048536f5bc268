"""Rooms import downwards only, and the tool that says so would notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")


def _lint(root: Path) -> tuple[int, str]:
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    command = [str(LINT), "--no-cache"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_arrows_go_down_only() -> None:
    code, output = _lint(ROOT)
    assert code == 0, output


def test_an_upward_import_is_caught(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / "src" / "trainingkit" / "core" / "units.py", "a") as units:
        units.write("\n\ndef planted() -> None:\n    import trainingkit.report\n")
    code, output = _lint(tmp_path)
    assert code == 1
    assert "trainingkit.core is not allowed to import trainingkit.report" in output
