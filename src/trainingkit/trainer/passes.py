"""Where a loop stands in its data: the walk over the loader, the epoch, and whether all ranks can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainingkit.sync.control import ControlLane
from trainingkit.trainer.feed import Feed
from trainingkit.trainer.phases import PhaseClock

_END = object()


class Passes:
    """The walks of one loop over its loader, counted.

    Args:
        endless: outside `epochs`, walk the loader as often as needed.
        saved: the state of the snapshot from which the run goes on; None for a new run.
        finished: whether the loop should end.
        lane: agrees between ranks whether all of them have a batch.
        clock: reading is timed as `input`, agreeing as `stall`.
        ranks: how many walk over the data together.
        say: told (event, text) of what a person should know.
    """

    def __init__(
        self,
        *,
        endless: bool,
        saved: Mapping[str, Any] | None,
        finished: Callable[[], bool],
        lane: ControlLane,
        clock: PhaseClock,
        ranks: int,
        say: Callable[[str, str], None],
    ) -> None:
        self._endless = endless
        self._ranks = ranks
        self._resumed = saved is not None
        self._epoch: int = (saved or {}).get("epoch", 0)
        self._feed_state: dict[str, Any] | None = (saved or {}).get("feed")
        self._finished = finished
        self._lane = lane
        self._clock = clock
        self._say = say
        self._feed: Feed | None = None
        self._in_epochs = False
        self._walks = 0

    def state_dict(self) -> dict[str, Any]:
        """`epoch`, and `feed`: the position in the walk of that epoch, None before it began."""
        return {"epoch": self._epoch, "feed": self._feed.state_dict() if self._feed else self._feed_state}

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of the epochs that are left of `count`; see `Kit.epochs`."""
        self._in_epochs = True
        if self._resumed and self._epoch >= count:
            self._say("resume", f"Nothing left to do: all {count} epochs are done.")
        try:
            while self._epoch < count and not self._finished():
                yield self._epoch
                if not self._finished():
                    self._epoch += 1
                    self._feed = self._feed_state = None
        finally:
            self._in_epochs = False

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches as the loader gives them, from where the run stood; see `Kit.batches`."""
        batches = iter(self._open(loader))
        self._clock.restart()
        given = 0
        while not self._finished():
            with self._clock.phase("input"):
                batch = next(batches, _END)
            if not self._all_have(batch):
                break
            given += 1
            yield batch
        if self._resumed and not (given or self._in_epochs or self._finished()):
            self._say("resume", "Nothing left to do in this pass over the data: it was used up before.")

    @property
    def _once(self) -> bool:
        """True where a walk ends with the loader."""
        return self._in_epochs or not self._endless

    def _open(self, loader: Iterable[Any]) -> Feed:
        """The next walk over the loader, or the rest of the one in which the run stood."""
        first = self._epoch if self._in_epochs else self._walks
        self._feed = Feed(
            loader,
            passes=1 if self._once else None,
            first=first,
            ranks=self._ranks,
            say=lambda text: self._say("data", text),
        )
        if self._feed_state is not None:
            self._feed.load_state_dict(self._feed_state)
            self._feed_state = None
        self._walks = self._feed.first + 1
        return self._feed

    def _all_have(self, batch: Any) -> bool:
        """True when every rank has a batch for the next micro-step."""
        here = batch is not _END
        if not self._once:
            return here
        with self._clock.phase("stall"):
            self._lane.start([0.0 if here else 1.0])
            without = self._lane.finish()[0]
        if here and without:
            self._say("leftover", "Another rank's data ended; a batch here was not used.")
        return without == 0
