"""What a test function knows about its rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ranks import faults as planned
from ranks.faults import Fault

if TYPE_CHECKING:
    from torch._C._distributed_c10d import ProcessGroup, Store


@dataclass(frozen=True)
class Context:
    """First argument of every function that `Pool.run` calls.

    Args:
        rank, world_size: this rank's place.
        store_path, prefix: the run's own FileStore file, and the prefix that the default group uses in it.
        store: that FileStore without the prefix, for groups and keys of the test.
        group: the default process group (Gloo), made for this run.
        tmp: a folder that all ranks of this run share; removed after it.
        faults: what `at_step` carries out.
    """

    rank: int
    world_size: int
    store_path: Path
    prefix: str
    store: Store
    group: ProcessGroup
    tmp: Path
    faults: tuple[Fault, ...] = ()

    def at_step(self, step: int) -> None:
        """Say that `step` begins: faults planned for this rank and step strike here."""
        planned.trigger(self.faults, self.rank, step)
