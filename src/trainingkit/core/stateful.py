"""State is state: what survives a restart has these two methods, and its state is made of JSON and tensors."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """Anything whose state a snapshot keeps."""

    def state_dict(self) -> dict[str, Any]:
        """The whole state: nested dicts of JSON values (and tensors, where the owner says so)."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        ...
