"""The state of every random generator that training may draw from, as JSON."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch


def generators() -> dict[str, Any]:
    """What Python's, NumPy's and torch's global generators (and CUDA's, where there is one) hold, by part.

    Two values of one part are equal (`==`) when the generator stands where it stood. `packed` gives their JSON form.
    """
    name, keys, *rest = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys).tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state().numpy().tobytes()
    return found


def packed(part: str, value: Any) -> Any:
    """The JSON form of one of `generators`; it takes far longer than to get it."""
    return _PACK[part](value)


def random_state() -> dict[str, Any]:
    """States of all global generators, as JSON."""
    return {part: packed(part, value) for part, value in generators().items()}


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


def _pack_python(value: Any) -> list[Any]:
    version, words, gauss = value
    return [version, list(words), gauss]


def _pack_numpy(value: Any) -> list[Any]:
    name, keys, position, has_gauss, gauss = value
    return [name, np.frombuffer(keys, dtype=np.uint32).tolist(), int(position), int(has_gauss), float(gauss)]


def _pack(state: bytes) -> str:
    return base64.b64encode(state).decode()


def _unpack(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


_PACK = {"python": _pack_python, "numpy": _pack_numpy, "torch": _pack, "cuda": _pack}
