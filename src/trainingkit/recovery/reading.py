"""Reading one snapshot back: everything is verified before anything is parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trainingkit.core.errors import CheckpointError
from trainingkit.core.logging import LOG
from trainingkit.recovery import jsonstate, manifest, store
from trainingkit.recovery.manifest import BadManifest, Manifest
from trainingkit.recovery.misfit import misfit
from trainingkit.recovery.store import TensorSpec, spec_of
from trainingkit.recovery.together import agree
from trainingkit.recovery.writing import SHARED, owner_of, rank_file

DOING = "reading a snapshot"
NAMES_SHOWN = 3


def load(
    path: Path,
    tensors: Mapping[str, Tensor],
    *,
    rank: int = 0,
    world_size: int = 1,
    group: ProcessGroup | None = None,
    only: str = "",
) -> dict[str, Any]:
    """Verify a snapshot, fill `tensors` in place, and return this rank's state.

    Args:
        path: a snapshot folder, as `newest_good` gives it.
        tensors: must have exactly the names, shapes and dtypes that the snapshot holds for this rank.
        group: a Gloo group of all ranks, which then all call; None to read alone.
        only: consider only tensor names that begin with this, for example "model/".

    Returns:
        The `state` this rank saved; {} with `only`, and for a rank that did not exist when the snapshot was made, of
        which a warning is logged.

    Raises:
        CheckpointError: the snapshot is damaged, or `tensors` does not fit it; on every rank of `group`.
    """
    listed = _verified(path, rank, world_size, group)
    agree(group, lambda: check_fit(tensors, stored_specs(path, rank, only)), doing=DOING)
    store.read(path, tensors, group)
    return {} if only else _state(path, listed, rank, world_size)


def load_new(
    path: Path,
    *,
    rank: int = 0,
    world_size: int = 1,
    group: ProcessGroup | None = None,
    only: str = "",
    of: int | None = None,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As `load`, into new CPU tensors: whatever the snapshot holds for this rank, or for the rank `of` in its place.

    With `of` and `only`, the state is given, too: `only=f"rank-{of}/"` is what that rank alone wrote.
    """
    owner = rank if of is None else of
    listed = _verified(path, rank, world_size, group)
    specs: dict[str, TensorSpec] = {}
    agree(group, lambda: specs.update(stored_specs(path, owner, only)), doing=DOING)
    tensors = {name: torch.zeros(spec.shape, dtype=spec.dtype) for name, spec in specs.items()}
    store.read(path, tensors, group)
    if of is not None:
        return tensors, _own_state(path, of)
    return tensors, {} if only else _state(path, listed, owner, world_size)


def read_shared(path: Path) -> dict[str, Any]:
    """Verify a snapshot and return the state that was the same on all ranks. Raises CheckpointError."""
    _verified(path, 0, 1, None)
    return jsonstate.loads((path / SHARED).read_bytes(), where="shared")


def stored_specs(path: Path, rank: int, only: str = "") -> dict[str, TensorSpec]:
    """Shape and dtype of the tensors that a verified snapshot holds for `rank`, by name."""
    everything = store.describe(path)
    return {n: spec for n, spec in everything.items() if owner_of(n) in (None, rank) and n.startswith(only)}


def check_fit(tensors: Mapping[str, Tensor], specs: Mapping[str, TensorSpec]) -> None:
    """Raise CheckpointError unless `tensors` has exactly the names, shapes and dtypes of `specs`."""
    check_names(found=specs, expected=tensors)
    for name, tensor in tensors.items():
        if spec_of(tensor) != specs[name]:
            raise CheckpointError(
                "A tensor of the snapshot does not fit.",
                field=name,
                found=str(specs[name]),
                expected=str(spec_of(tensor)),
                next_step="Resume with the recipe that made the snapshot.",
            )


def check_names(*, found: Iterable[str], expected: Iterable[str]) -> None:
    """Raise CheckpointError that names the first few missing and extra names of a snapshot, if there are any."""
    found, expected = set(found), set(expected)
    parts = [
        f"{label}: {_some(names)}"
        for label, names in (("missing", expected - found), ("extra", found - expected))
        if names
    ]
    if parts:
        raise CheckpointError(
            "The snapshot does not hold the tensors that are needed.",
            field="snapshot tensors",
            found="; ".join(parts),
            expected=f"exactly the {len(expected)} names of this run",
            next_step="Resume with the model and optimizer that made the snapshot.",
        )


def _some(names: set[str]) -> str:
    first = ", ".join(sorted(names)[:NAMES_SHOWN])
    return first if len(names) <= NAMES_SHOWN else f"{first} and {len(names) - NAMES_SHOWN} more"


def _verified(path: Path, rank: int, world_size: int, group: ProcessGroup | None) -> Manifest:
    """The manifest, once every file is checked. The ranks of a group share the reading of the contents."""
    part, parts = (rank, world_size) if group is not None else (0, 1)
    return agree(group, _checker(path, part, parts), doing=DOING)[0]


def _checker(path: Path, part: int, parts: int) -> Callable[[], Manifest]:
    def check() -> Manifest:
        try:
            listed = manifest.read(path)
        except BadManifest as error:
            raise _damaged(path, f"{manifest.MANIFEST}: {error}") from error
        mine = set(sorted(listed.files)[part::parts])
        problem = misfit(path, listed) or manifest.mismatch(path, listed, checksums_of=mine)
        if problem is not None:
            raise _damaged(path, problem)
        return listed

    return check


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"The snapshot {path.name} is damaged: {problem}.",
        field="snapshot",
        found=str(path),
        expected="every file as its manifest says",
        next_step="Use the snapshot before it; `trainingkit resume` does so by itself.",
    )


def _state(path: Path, listed: Manifest, rank: int, world_size: int) -> dict[str, Any]:
    if world_size < listed.world_size and rank == 0:
        LOG.warning("%s: the state of ranks %d to %d is not used", path.name, world_size, listed.world_size - 1)
    if rank >= listed.world_size:
        LOG.warning("%s was made by %d ranks: rank %d starts without state", path.name, listed.world_size, rank)
        return {}
    return _own_state(path, rank)


def _own_state(path: Path, rank: int) -> dict[str, Any]:
    return jsonstate.loads((path / rank_file(rank)).read_bytes(), where=rank_file(rank))
