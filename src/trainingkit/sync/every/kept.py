"""What each rank's optimizer keeps, told to all ranks, so that all of them can do the same collectives.

A parameter that never had a gradient on some rank has no state there. What any rank keeps, all will keep; what cannot
be agreed on is refused on all ranks alike, since each of them compares the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from trainingkit.core.errors import StepError

Shape = tuple[int, ...]
PLAIN = (bool, int, float, str)


class Kept(NamedTuple):
    """One entry of a parameter's state.

    Args:
        type: name of the value's type.
        shape: of a tensor; () for one number.
        dtype: of a tensor; None: a plain number.
        on_cpu: whether it is there; else where the parameter is.
        value: of one number, be it a tensor or not; None: more than that, or nothing that ranks can agree on.
    """

    type: str
    shape: Shape
    dtype: torch.dtype | None
    on_cpu: bool
    value: float | None

    @property
    def known(self) -> bool:
        """Whether it is a tensor or a number."""
        return bool(self.shape) or self.value is not None

    def same_kind(self, other: Kept) -> bool:
        """Whether it is the same but for its value and place."""
        return (self.type, self.shape, self.dtype) == (other.type, other.shape, other.dtype)


class Source(NamedTuple):
    """The first rank that keeps an entry, and what that keeps."""

    rank: int
    kept: Kept


class Told(NamedTuple):
    """What one rank's optimizer is.

    Args:
        groups: options of each group, such as its learning rate.
        shapes: of all parameters, in the order of the groups.
        kept: of each of them, by name.
    """

    groups: list[dict[str, Any]]
    shapes: list[Shape]
    kept: list[dict[str, Kept]]


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """All parameters, in the order of the groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def tell(optimizer: Optimizer, group: dist.ProcessGroup) -> list[Told]:
    """What every rank's optimizer is, in rank order. All ranks call it.

    Raises:
        RuntimeError: a peer is lost.
    """
    parameters = parameters_of(optimizer)
    mine = Told(
        [_options(each) for each in optimizer.param_groups],
        [tuple(parameter.shape) for parameter in parameters],
        [_kept(optimizer.state.get(parameter, {})) for parameter in parameters],
    )
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, mine, group=group)
    return told


def joint(told: Sequence[Told]) -> list[dict[str, Source]]:
    """What any rank keeps, by parameter and then by name, names sorted.

    Raises:
        StepError: optimizers are over other parameters, or keep what ranks cannot agree on.
    """
    for rank, theirs in enumerate(told):
        if theirs.shapes != told[0].shapes or len(theirs.groups) != len(told[0].groups):
            raise _over_others(told, rank)
    return [_joint_entries([theirs.kept[index] for theirs in told], index) for index in range(len(told[0].shapes))]


def _joint_entries(by_rank: Sequence[Mapping[str, Kept]], index: int) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for rank, entries in enumerate(by_rank):
        for name, kept in entries.items():
            source = found.setdefault(name, Source(rank, kept))
            if not kept.known or not kept.same_kind(source.kept):
                raise _other_kind(name, index, source, rank, kept)
    return dict(sorted(found.items()))


def _kept(state: Mapping[str, Any]) -> dict[str, Kept]:
    return {str(name): _entry(value) for name, value in state.items() if value is not None}


def _entry(value: Any) -> Kept:
    name = type(value).__name__
    if isinstance(value, Tensor):
        number = float(value) if not value.dim() and not value.is_complex() else None
        return Kept(name, tuple(value.shape), value.dtype, value.device.type == "cpu", number)
    return Kept(name, (), None, True, value if isinstance(value, bool | int | float) else None)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's settings that are numbers, names or tuples of them; of a tensor its number."""
    settings = {name: value for name, value in group.items() if name != "params"}
    found = {n: float(v) if isinstance(v, Tensor) and not v.dim() else v for n, v in settings.items()}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(isinstance(each, PLAIN) for each in value))


def _over_others(told: Sequence[Told], rank: int) -> StepError:
    first, theirs = (f"{len(each.shapes)} parameters in {len(each.groups)} groups" for each in (told[0], told[rank]))
    return StepError(
        f"The optimizers of rank 0 and rank {rank} are over other parameters.",
        field="optimizer.param_groups",
        found=f"{first} on rank 0, {theirs} on rank {rank}" + (", of other shapes" if first == theirs else ""),
        expected="the same groups of the same parameters on all ranks",
        next_step="Change the groups of an optimizer at the same step on every rank.",
    )


def _other_kind(name: str, index: int, source: Source, rank: int, kept: Kept) -> StepError:
    return StepError(
        "Ranks cannot agree on what the optimizer keeps.",
        field=f"optimizer.state[{index}].{name}",
        found=_on_ranks(source, Source(rank, kept)),
        expected="tensors of one shape and type, or numbers, on all ranks that keep any",
        next_step="With this optimizer let gradients travel at every step: sync.max_every = 1.",
    )


def _on_ranks(*sources: Source) -> str:
    return ", ".join(dict.fromkeys(f"{_show(each.kept)} on rank {each.rank}" for each in sources))


def _show(kept: Kept) -> str:
    if kept.dtype is None:
        return kept.type
    return f"{list(kept.shape)} {str(kept.dtype).removeprefix('torch.')}"
