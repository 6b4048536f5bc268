"""Interleaved 1F1B (Narayanan et al. 2021): v chunks per stage. Bubble (p-1)/(v m+p-1); 1+(p-1)/(pv) of the memory."""

from __future__ import annotations

from trainingkit.planner.schedule.registry import SCHEDULES, Shape, Work


class Interleaved:
    """Micro-batches go through the chunks in groups of p."""

    splits = False
    folded = False
    needs_chunks = True

    def order(self, shape: Shape, stage: int) -> list[Work]:
        """Warm-up, one forward and one backward, cool-down, over m * v pieces."""
        total = shape.micros * shape.chunks
        warm = self._warm(shape, stage)
        found = [self._piece(shape, "F", place) for place in range(warm)]
        for place in range(warm, total):
            found += [self._piece(shape, "F", place), self._piece(shape, "B", place - warm)]
        return found + [self._piece(shape, "B", place) for place in range(total - warm, total)]

    def held(self, shape: Shape, stage: int) -> float:
        """Pieces in flight, in whole stages."""
        total = shape.micros * shape.chunks
        return min(total, self._warm(shape, stage) + 1) / shape.chunks

    def legal(self, shape: Shape) -> bool:
        """Two chunks or more, and whole groups of micro-batches."""
        return shape.chunks > 1 and shape.stages > 1 and shape.micros % shape.stages == 0

    def _warm(self, shape: Shape, stage: int) -> int:
        p, v, m = shape.stages, shape.chunks, shape.micros
        return m * v if m == p else min(m * v, 2 * (p - stage - 1) + (v - 1) * p)

    def _piece(self, shape: Shape, kind: str, place: int) -> Work:
        p, v = shape.stages, shape.chunks
        group, within = divmod(place, p * v)
        chunk, offset = divmod(within, p)
        return Work(kind, group * p + offset, chunk if kind == "F" else v - 1 - chunk)


SCHEDULES.register("interleaved")(Interleaved())
