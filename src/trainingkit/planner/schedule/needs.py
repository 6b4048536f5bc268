"""What a piece of work waits for, in a pipeline that goes round and in one that is folded."""

from __future__ import annotations

from trainingkit.planner.schedule.registry import Shape, Work


def needs(shape: Shape, stage: int, work: Work) -> tuple[int, Work] | None:
    """(stage, work) that must have ended before, or None. Chunk c + 1 begins on the first stage after chunk c."""
    kind, micro, chunk = work
    last = shape.stages - 1
    if kind == "W":
        return stage, Work("B", micro, chunk)
    if kind == "F":
        if stage > 0:
            return stage - 1, Work("F", micro, chunk)
        return (last, Work("F", micro, chunk - 1)) if chunk else None
    if stage < last:
        return stage + 1, Work("B", micro, chunk)
    return (0, Work("B", micro, chunk + 1)) if chunk < shape.chunks - 1 else (stage, Work("F", micro, chunk))


def folded_needs(shape: Shape, stage: int, work: Work) -> tuple[int, Work] | None:
    """The same where chunk 1 runs from the last stage to the first."""
    kind, micro, chunk = work
    last = shape.stages - 1
    if kind == "W":
        return stage, Work("B", micro, chunk)
    forth = (kind == "F") == (chunk == 0)
    begins = stage == 0 if forth else stage == last
    if not begins:
        return stage - 1 if forth else stage + 1, work
    before = {("F", 0): None, ("F", 1): Work("F", micro, 0), ("B", 1): Work("F", micro, 1)}
    found = before.get((kind, chunk), Work("B", micro, 1))
    return None if found is None else (stage, found)
