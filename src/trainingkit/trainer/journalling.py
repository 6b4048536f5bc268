"""The journal of a running loop: what of each step is written down, so that `trainer.replaying` can take it again.

A step's record on one rank:

    numbers   of this step, the same on all ranks: what travelled (`trainer.travelled`) says which
    shared    what changed of what all ranks have in common: what travelled, and how
    probe     of the state before the update (`trainer.probe`)
    own       what changed of this rank's place in the data, and of whatever else the loop keeps
    blobs     row/<bucket>/<owner>  the agreed messages of this rank and of the one before it
              random/<generator>    where it changed;   buffer/<name>  on ranks 0 and 1, where it changed
"""

from __future__ import annotations

import copy
import json
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from trainingkit.core.files import write_atomic
from trainingkit.recovery import layout
from trainingkit.recovery.journal import MARK, JournalWriter, Origin, differing, patched
from trainingkit.recovery.together import agree
from trainingkit.sync.contract import Sync
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import StepResult
from trainingkit.trainer.rng import generators, packed
from trainingkit.trainer.sections import JournalSection
from trainingkit.trainer.session import Session
from trainingkit.trainer.travelled import Travelled, not_covered, travelled_of

RUN_ID = "run-id"
OFF = "off"
BUFFER_RANKS = 2


def open_journal(
    session: Session,
    section: JournalSection,
    *,
    sync: Sync,
    model: nn.Module,
    buffers: ModelBuffers,
    clip_norm: float | None,
    say: Callable[[str, str], None],
) -> Journalling | None:
    """The journal that the recipe asks for; None, and a word to `say`, where there is nothing that it could keep.

    All ranks call it.
    """
    if section.steps == OFF:
        return None
    why = not_covered(sync)
    if why is not None:
        say("journal", f"The journal does not cover {why}: after a loss this run goes on from its newest snapshot.")
        return None
    rows = {session.rank, (session.rank - 1) % session.world_size}
    return Journalling(session, section, travelled_of(sync, model, rows, clip_norm), buffers, say)


class Journalling:
    """Writes one rank's journal.

    Args:
        travelled: hears what is to be kept of each step.
        buffers: aligned after each step where the model has any and gradients travel, because the record holds them.
        say: told (event, text) of what a person should know.
    """

    def __init__(
        self,
        session: Session,
        section: JournalSection,
        travelled: Travelled,
        buffers: ModelBuffers,
        say: Callable[[str, str], None],
    ) -> None:
        self.say = say
        self._session = session
        self._travelled = travelled
        self._buffers = buffers
        self._run = _run_id(session)
        self._said: dict[str, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self._random_before: dict[str, Any] = {}
        self._warned: set[str] = set()
        self._begun_after: int | None = None
        self._writer = JournalWriter(
            session.run.journal, fsync_s=section.fsync_s, queue_bytes=round(section.queue_mb * 1e6)
        )

    @property
    def probes(self) -> bool:
        """Whether the state before each update must be looked at."""
        return self._travelled.probes

    @property
    def mark(self) -> dict[str, Any]:
        """What a snapshot must say of itself, so that a journal can be told to follow it."""
        return {"run": self._run, "attempt": self._session.attempt}

    def follows(self, state: Mapping[str, Any]) -> int | None:
        """The attempt that made a snapshot of this run's, by its state; None where no journal was kept then."""
        mark = state.get(MARK) or {}
        return mark["attempt"] if mark.get("run") == self._run else None

    @property
    def written_bytes(self) -> int:
        """Bytes handed to the kernel so far."""
        return self._writer.written_bytes

    @property
    def waited_s(self) -> float:
        """Seconds that steps waited for the journal's queue."""
        return self._writer.waited_s

    def begin(self, step: int, *, base_attempt: int) -> None:
        """A segment begins after `step`, whose state `base_attempt` came to, in a snapshot or in a replay."""
        self._said, self._written, self._random_before, self._begun_after = {}, {}, {}, step
        self._travelled.forget()
        kept = [place.step for place in layout.places(self._session.run.snapshots) if place.kind == layout.PUBLISHED]
        self._writer.begin(
            Origin(
                run=self._run,
                attempt=self._session.attempt,
                rank=self._session.rank,
                world_size=self._session.world_size,
                base_step=step,
                base_attempt=base_attempt,
            ),
            oldest_step=min(kept, default=0),
        )

    def saved(self, step: int) -> None:
        """A snapshot of `step` is under way: the segments rotate, unless one has begun there."""
        if step != self._begun_after:
            self.begin(step, base_attempt=self._session.attempt)

    def step(self, step: int, result: StepResult, extra: Mapping[str, Any]) -> None:
        """A step is over, committed or not. Collective where the model has buffers.

        Args:
            extra: this rank's place in the data and what else the loop keeps.
        """
        if self._travelled.aligns:
            self._buffers.align()
        taken = self._travelled.take(result)
        if taken.gap is not None:
            self._warn_once(step, taken.gap)
        head = {
            "numbers": dict(taken.numbers),
            "shared": self._difference("shared", dict(taken.shared)),
            "own": self._difference("own", {"extra": dict(extra)}),
            "probe": dict(taken.probe),
            "loss": result.loss,
            "tokens": result.tokens,
        }
        self._writer.append(step, head, {**taken.blobs, **self._random(), **self._buffer_blobs()})
        for text in self._writer.problems():
            self.say("journal", text)

    def close(self) -> None:
        """Write what waits, and end. No step may follow."""
        self._travelled.close()
        self._writer.close()

    def _difference(self, kind: str, now: dict[str, Any]) -> dict[str, Any]:
        """What changed since the record before; copied, because owners of a state may go on changing it."""
        before = self._said.get(kind, {})
        changed = copy.deepcopy(differing(before, now))
        self._said[kind] = patched(before, changed)
        return changed

    def _random(self) -> dict[str, bytes]:
        before, self._random_before = self._random_before, generators()
        changed = {part: value for part, value in self._random_before.items() if before.get(part) != value}
        return {f"random/{part}": json.dumps(packed(part, value)).encode() for part, value in changed.items()}

    def _buffer_blobs(self) -> dict[str, bytes]:
        if self._session.rank >= BUFFER_RANKS:
            return {}
        return self._changed({f"buffer/{name}": buffer_bytes(b) for name, b in self._buffers.persistent().items()})

    def _changed(self, blobs: dict[str, bytes]) -> dict[str, bytes]:
        sums = {name: zlib.crc32(blob) for name, blob in blobs.items()}
        changed = {name: blob for name, blob in blobs.items() if self._written.get(name) != sums[name]}
        self._written |= sums
        return changed

    def _warn_once(self, step: int, why: str) -> None:
        if why in self._warned:
            return
        self._warned.add(why)
        self.say("journal", f"Step {step} {why}: after a loss the run goes on before it, or from a later snapshot.")


def buffer_bytes(buffer: torch.Tensor) -> bytes:
    """A buffer's values as they are in memory, in the order of its elements."""
    return buffer.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _run_id(session: Session) -> str:
    """The run folder's id, made by rank 0 when it is first asked for. All ranks call it."""

    def find() -> str:
        path = session.run.journal / RUN_ID
        if session.rank == 0 and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, uuid.uuid4().hex + "\n")
        return path.read_text(encoding="utf-8").strip() if session.rank == 0 else ""

    return agree(session.snapshot_group, find, doing="beginning the journal")[0]
