"""Automatic choices as events with their reason: `decisions.jsonl`, enough to explain and to replay a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from trainingkit.core.files import end_last_line


def record(path: Path, *, step: int, choice: str, value: Any, reason: str) -> None:
    """Append one decision.

    Args:
        choice: what was decided, for example `threads` or `precision`.
        value: the outcome, JSON-able.
        reason: one sentence a person can check.
    """
    row = {"time_s": time.time(), "step": step, "choice": choice, "value": value, "reason": reason}
    end_last_line(path)
    with open(path, "a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All decisions in order; a line that a kill cut in half is skipped."""
    rows: list[dict[str, Any]] = []
    if not path.exists():
        return rows
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
