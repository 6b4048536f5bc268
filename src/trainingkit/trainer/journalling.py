"""The journal of a running loop: what of each step is written down, so that `trainer.replaying` can take it again.

A step's record on one rank:

    numbers   of this step, the same on all ranks: committed or not, the gradient's norm, each group's learning rate
    shared    what changed of: the buckets and how each travelled, what had no gradient, clip norm, synchroniser, other
              settings of the optimizer's groups, and which of them could not be recorded
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
from trainingkit.exchange.registry import HIERARCHICAL
from trainingkit.recovery import layout
from trainingkit.recovery.journal import MARK, JournalWriter, Origin, differing, patched, row_name
from trainingkit.recovery.names import inner
from trainingkit.recovery.together import agree
from trainingkit.sync.agreed import Agreed
from trainingkit.sync.contract import Sync
from trainingkit.sync.exempt import parameter_names
from trainingkit.sync.listening import of_gradients
from trainingkit.sync.squeezed import Squeezed
from trainingkit.trainer.buffers import ModelBuffers
from trainingkit.trainer.engine import StepResult
from trainingkit.trainer.groups import unknown_in
from trainingkit.trainer.rng import generators, packed
from trainingkit.trainer.sections import JournalSection
from trainingkit.trainer.session import Session

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
    gradients = of_gradients(sync)
    assert gradients is not None
    return Journalling(session, section, gradients, model, buffers, clip_norm, say)


def not_covered(sync: Sync) -> str | None:
    """What it is about a synchroniser that no journal can keep; None where it can."""
    gradients = of_gradients(sync)
    if gradients is None:
        return "a run in which no squeezed gradients travel"
    if gradients.wire_format[0] == HIERARCHICAL:
        return "the exchange on islands"
    return None


class Journalling:
    """Writes one rank's journal.

    Args:
        buffers: aligned after each step where the model has any, because the record holds them.
        say: told (event, text) of what a person should know.
    """

    def __init__(
        self,
        session: Session,
        section: JournalSection,
        sync: Squeezed,
        model: nn.Module,
        buffers: ModelBuffers,
        clip_norm: float | None,
        say: Callable[[str, str], None],
    ) -> None:
        self.say = say
        self._session = session
        self._sync = sync
        self._clip_norm = clip_norm
        self._names = parameter_names(inner(model))
        self._buffers = buffers
        self._run = _run_id(session)
        self._rows = {session.rank, (session.rank - 1) % session.world_size}
        self._pending: list[tuple[Agreed, dict[int, bytes]]] = []
        self._said: dict[str, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self._random_before: dict[str, Any] = {}
        self._warned: set[str] = set()
        self._begun_after: int | None = None
        self._writer = JournalWriter(
            session.run.journal, fsync_s=section.fsync_s, queue_bytes=round(section.queue_mb * 1e6)
        )
        sync.tap = self._hear

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
        pending, self._pending = self._pending, []
        self._buffers.align()
        covered = bool(pending)
        unrecorded = unknown_in(result.groups)
        if result.committed and not covered:
            self._warn_once(step, "sent no squeezed gradients, and only those are kept")
        elif result.committed and unrecorded is not None:
            self._warn_once(step, f"was taken with a setting of the optimizer that cannot be recorded ({unrecorded})")
        head = {
            "numbers": {
                "committed": result.committed,
                "norm": result.grad_norm.hex(),
                "lrs": [lr.hex() for lr in result.lrs],
            },
            "shared": self._difference("shared", self._shared(pending, result, covered=covered)),
            "own": self._difference("own", {"extra": dict(extra)}),
            "probe": result.probe,
            "loss": result.loss,
            "tokens": result.tokens,
        }
        blobs = self._rows_of(pending) if result.committed else {}
        self._writer.append(step, head, {**blobs, **self._random(), **self._buffer_blobs()})
        for text in self._writer.problems():
            self.say("journal", text)

    def close(self) -> None:
        """Write what waits, and end. No step may follow."""
        self._sync.tap = None
        self._writer.close()

    def _hear(self, agreed: Agreed) -> None:
        """On the exchange's last thread: the messages are copied, because the next step overwrites them."""
        self._pending.append((agreed, {row: agreed.rows[row].numpy().tobytes() for row in self._rows}))

    def _shared(
        self, pending: list[tuple[Agreed, dict[int, bytes]]], result: StepResult, *, covered: bool
    ) -> dict[str, Any]:
        return {
            "covered": covered,
            "buckets": [list(agreed.names) for agreed, _ in pending],
            "ways": [[a.codec, a.rung.codec, a.rung.normalise, a.scale] for a, _ in pending],
            "absent": [name for p, name in self._names.items() if p.requires_grad and p.grad is None],
            "clip_norm": self._clip_norm,
            "groups": {str(index): dict(group) for index, group in enumerate(result.groups)},
            "unrecorded": unknown_in(result.groups),
            "sync": self._sync.progress(),
            "wire": self._sync.wire_format,
        }

    def _difference(self, kind: str, now: dict[str, Any]) -> dict[str, Any]:
        """What changed since the record before; copied, because owners of a state may go on changing it."""
        before = self._said.get(kind, {})
        changed = copy.deepcopy(differing(before, now))
        self._said[kind] = patched(before, changed)
        return changed

    def _rows_of(self, pending: list[tuple[Agreed, dict[int, bytes]]]) -> dict[str, bytes]:
        return {row_name(index, row): data for index, (_, rows) in enumerate(pending) for row, data in rows.items()}

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
