"""TrainingKit: train PyTorch models on slow links, unequal machines and machines that fail.

The names people type are loaded on first use, so `import trainingkit` is quick and pulls in no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from trainingkit.api import Trainer as Trainer
    from trainingkit.api import attach as attach
    from trainingkit.api import compress as compress
    from trainingkit.planner import plan as plan

__all__ = ["Trainer", "attach", "compress", "plan"]


def __getattr__(name: str) -> Any:
    if name == "plan":
        from trainingkit import planner

        return planner.plan
    if name in __all__:
        from trainingkit import api

        return getattr(api, name)
    raise AttributeError(f"module 'trainingkit' has no attribute {name!r}")
