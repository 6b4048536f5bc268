"""Batches for a loop, with a position that a snapshot can keep.

Our own `data.loader.Loader` continues at any sample. A user's loader that has `state_dict` and `load_state_dict`
(torchdata's StatefulDataLoader) is asked for its state. Any other loader is walked again from the start of its
pass, with the random state it had then, up to the batch where the run stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainingkit.core.errors import DataError
from trainingkit.core.stateful import Stateful
from trainingkit.trainer.recount import recounted
from trainingkit.trainer.rng import random_state, set_random_state


class Feed:
    """Endless or one-pass iteration over a loader, counted.

    Args:
        passes: how often to walk a finite loader; None: without end.
        first: number of the first pass, which a sampler's `set_epoch` is told.
        ranks: how many walk over the data together.
        say: told what a person should know of a position that another number of ranks made.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        passes: int | None,
        first: int = 0,
        ranks: int = 1,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.first = first
        self._loader = loader
        self._passes = passes
        self._ranks = ranks
        self._say = say
        self._pass = first
        self._batches = 0
        self._pass_random: dict[str, Any] | None = None
        self._resume: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        while self._passes is None or self._pass < self.first + self._passes:
            before = self._batches
            yield from self._one_pass()
            if self._batches == 0 and before == 0:
                raise DataError(
                    "The loader gave no batch.",
                    field="loader",
                    found="an empty pass",
                    expected="at least one batch per rank",
                    next_step="Check the data, the batch size and drop_last.",
                )
            self._pass += 1
            self._batches = 0

    def state_dict(self) -> dict[str, Any]:
        """Position after the batch that was given out last."""
        state: dict[str, Any] = {"first": self.first, "pass": self._pass, "batches": self._batches}
        state["ranks"] = self._ranks
        if isinstance(self._loader, Stateful):
            state["loader"] = self._loader.state_dict()
        else:
            state["pass_random"] = self._pass_random
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at the batch after that position, which another number of ranks may have made."""
        state_dict, text = recounted(state_dict, self._loader, self._ranks)
        if text is not None:
            self._say(text)
        self.first = state_dict.get("first", 0)
        self._pass = state_dict["pass"]
        self._batches = state_dict["batches"]
        self._resume = state_dict

    def _one_pass(self) -> Iterator[Any]:
        for batch in self._open():
            self._batches += 1
            yield batch

    def _open(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        if isinstance(self._loader, Stateful):
            if resume is not None:
                self._loader.load_state_dict(resume["loader"])
            return iter(self._loader)
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(self._pass)
        if resume is None or resume["pass_random"] is None:
            self._pass_random = random_state()
            return iter(self._loader)
        return self._walk_again(resume)

    def _walk_again(self, resume: dict[str, Any]) -> Iterator[Any]:
        now = random_state()
        self._pass_random = resume["pass_random"]
        set_random_state(resume["pass_random"])
        iterator = iter(self._loader)
        for skipped in range(resume["batches"]):
            if next(iterator, None) is None:
                raise DataError(
                    "The loader is shorter than when the run was saved.",
                    field="loader",
                    found=f"{skipped} batches",
                    expected=f"at least {resume['batches']}",
                    next_step="Resume with the same data and batch size.",
                )
        set_random_state(now)
        return iterator
