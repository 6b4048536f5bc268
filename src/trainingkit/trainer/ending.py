"""How a loop ends: well, badly, or in mid-step. What it leaves for whoever judges the run, and what it gives back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from trainingkit.core import exitcodes
from trainingkit.core.errors import PeerLost, StepError
from trainingkit.core.logging import LOG
from trainingkit.core.outcome import Outcome, leave_failure
from trainingkit.core.runfolder import RunFolder
from trainingkit.sync.control import ControlLane
from trainingkit.trainer.engine import StepEngine
from trainingkit.trainer.keeper import Keeper
from trainingkit.trainer.recorder import Recorder
from trainingkit.trainer.session import Session
from trainingkit.trainer.stops import StopRequest


class Ending:
    """Ends one loop, once.

    Args:
        lane: a control lane that nobody uses any more when the loop ends.
        on_close: called on rank 0 with the run folder when the loop has ended well.
    """

    def __init__(
        self,
        session: Session,
        *,
        engine: StepEngine,
        keeper: Keeper,
        recorder: Recorder,
        stop: StopRequest,
        lane: ControlLane,
        on_close: Callable[[RunFolder], object] | None,
    ) -> None:
        self.done = False
        self._session = session
        self._engine = engine
        self._keeper = keeper
        self._recorder = recorder
        self._stop = stop
        self._lane = lane
        self._on_close = on_close

    def drop_half_step(self, step: int, why: str) -> None:
        """Give up a step that is half done, and say so."""
        if not self._engine.between_steps:
            self._engine.cancel()
            self._recorder.event(step, "leftover", f"{why} in mid-step; the last micro-batches were not used.")

    def well(self, step: int, *, stopped: str | None) -> None:
        """Everything is saved: leave the outcome, wait for that of the others, release everything.

        Args:
            stopped: what ended the loop early, or None. A file that asked for it is removed.

        Raises:
            CheckpointError: the last snapshot could not be written.
            RunFolderError: the outcome could not be written.
        """
        self._keeper.close()
        if stopped:
            text = f"Stopped by {stopped} after step {step}; the state is saved."
            self._recorder.event(step, "preempted", text, show=False)
            if self._session.rank == 0:
                self._session.run.stop.unlink(missing_ok=True)
        status = "preempted" if stopped else "done"
        with self._session.run.written():
            Outcome(self._session.rank, status, exit_code_of(stopped), step).write(self._session.run)
        self._wait_for_outcomes()
        self._release()
        if self._on_close is not None and self._session.rank == 0:
            self._on_close(self._session.run)

    def badly(self, step: int, error: BaseException) -> None:
        """Leave the outcome; no collective, no save.

        The outcome comes first: a launcher that has seen another rank die sends SIGTERM, and once the signals are given
        back that is the end of this process.
        """
        if self.done:
            return
        self.done = True
        leave_failure(self._session.run, self._session.rank, step, error)
        self._stop.restore()
        self._engine.close()
        LOG.error("the loop failed after step %d", step, exc_info=error)
        self._session.on_close()
        with contextlib.suppress(StepError):
            self._recorder.event(step, "error", str(error) or type(error).__name__, show=False)
        with contextlib.suppress(OSError):
            self._recorder.close()

    def _wait_for_outcomes(self) -> None:
        """Until every rank has left its outcome, so that whoever judges the run sees all of them."""
        with contextlib.suppress(PeerLost):
            self._lane.start([0.0])
            self._lane.finish()

    def _release(self) -> None:
        self.done = True
        self._engine.close()
        self._engine.sync.close()
        self._recorder.close()
        self._stop.restore()
        self._session.close()


def exit_code_of(stopped: str | None) -> int:
    """What a script should end with: 0, or 75 after a stop on request."""
    return exitcodes.PREEMPTED if stopped else exitcodes.DONE


def is_plain_exit(error: BaseException) -> bool:
    """`sys.exit()` inside the loop, with a code that is no failure."""
    return isinstance(error, SystemExit) and error.code in (None, exitcodes.DONE, exitcodes.PREEMPTED)
