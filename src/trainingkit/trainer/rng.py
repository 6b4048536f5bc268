"""The state of every random generator that training may draw from, as JSON."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's global generators (and CUDA's, where there is one)."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # type: ignore[misc]
    python_version, python_words, python_gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [python_version, list(python_words), python_gauss],
        "numpy": [name, keys.tolist(), int(position), int(has_gauss), float(gauss)],  # type: ignore[union-attr]
        "torch": _pack(torch.get_rng_state()),
    }
    if torch.cuda.is_available():
        state["cuda"] = _pack(torch.cuda.get_rng_state())
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Continue drawing exactly where `random_state` was taken."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_unpack(state["torch"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(_unpack(state["cuda"]))


def seed_all(seed: int) -> None:
    """Seed all global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _pack(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _unpack(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
