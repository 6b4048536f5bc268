"""The door to training apart: from a model, its optimizer and a text to the synchroniser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _broadcast_coalesced
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.core.errors import ConfigError
from trainingkit.exchange import EXCHANGES
from trainingkit.exchange.clock import StageClock
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.queue import STAGES, OrderedQueue
from trainingkit.sync.bucketsize import bucket_mb, trainable
from trainingkit.sync.contract import Sync
from trainingkit.sync.every.apart import EverySync
from trainingkit.sync.every.dealing import deal
from trainingkit.sync.every.fragment import Fragment
from trainingkit.sync.every.parcel import Wire
from trainingkit.sync.every.settings import AUTO
from trainingkit.sync.every.spec import EverySpec, parse_every
from trainingkit.sync.exempt import TINY_ELEMENTS, odd_names, parameter_names, squeezed_names
from trainingkit.sync.lanes import lay_lanes, new_group
from trainingkit.sync.plain import SingleProcess, group_of
from trainingkit.sync.section import AUTO_ISLANDS, IslandChoice

EXEMPT_CODEC = "all|bf16"
DENSE_CODEC = "all|fp32"
BROADCAST_BYTES = 1 << 25


def train_apart(
    model: nn.Module,
    optimizer: Optimizer | None,
    text: str | EverySpec,
    *,
    group: dist.ProcessGroup | None,
    warmup_steps: int | None = None,
    normalise: bool = False,
    adaptive: bool = False,
    timeout_s: float = 300.0,
    islands: IslandChoice = AUTO_ISLANDS,
    parcel_mb: float | None = None,
) -> Sync:
    """A synchroniser whose ranks train on their own between rounds. All ranks call it; rank 0's model is everybody's.

    Args:
        model: bare, or in DistributedDataParallel, which then exchanges nothing any more.
        optimizer: over the model's parameters.
        text: see `sync.every.spec`.
        group: the ranks; None for one process.
        warmup_steps, normalise, adaptive: settings of gradients, refused here where they ask for anything.
        timeout_s: deadline of one collective.
        islands: which ranks share a fast network (`sync.lanes`); with an exchange of the text's own, none do.
        parcel_mb: size of a parcel in MB of fp32; None: by the model's size, as for buckets of gradients.

    Raises:
        ConfigError: no optimizer, a text that cannot be read, numbers that fp32 cannot hold, fewer layers than
            fragments, or models that differ between ranks.
    """
    spec = parse_every(text)
    _refuse_settings_of_gradients(warmup_steps=warmup_steps, normalise=normalise or None, adaptive=adaptive or None)
    if optimizer is None:
        raise _without_optimizer(spec)
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    _refuse_odd(odd_names(inner))
    named = trainable_by_name(inner)
    deal(list(named), spec.every.fragments)
    ranks = dist.get_world_size(group) if group is not None else 1
    if ranks == 1 and spec.every.is_mean:
        return SingleProcess(model)
    wire = None
    if group is not None and ranks > 1:
        _align(inner, group)
        wire = _wire(spec, inner, group, timeout_s=timeout_s, islands=islands)
    parcel_bytes = round(1e6 * bucket_mb(trainable(inner), parcel_mb))
    return assemble(model, named, optimizer, spec, wire, ranks=ranks, parcel_bytes=parcel_bytes)


def trainable_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that can be trained now, which are those that rounds carry from then on."""
    return {name: parameter for parameter, name in parameter_names(model).items() if parameter.requires_grad}


def assemble(
    model: nn.Module,
    named: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    spec: EverySpec,
    wire: Wire | None,
    *,
    ranks: int,
    parcel_bytes: int,
) -> EverySync:
    """The synchroniser over a wire that is there, for models that are the same on all ranks. Nothing travels.

    Args:
        named: the parameters that rounds carry, by name, in the model's order.
        parcel_bytes: of fp32, about.

    Raises:
        ConfigError: fewer layers than fragments.
    """
    fragments = [
        Fragment(
            {name: named[name] for name in names},
            spec.every,
            wire,
            offset=spec.every.offset(index),
            parcel_bytes=parcel_bytes,
        )
        for index, names in enumerate(deal(list(named), spec.every.fragments))
    ]
    return EverySync(model, optimizer, spec, fragments, wire, ranks=ranks)


def follow_script(model: nn.Module, optimizer: Optimizer | None, text: str, **settings: Any) -> Sync:
    """As `train_apart`, for a script's own loop: each `optimizer.step()` is a step.

    Args:
        model: in DistributedDataParallel, whose ranks are taken, or bare: then all ranks of the job.
        settings: of `train_apart`.
    """
    if isinstance(model, DistributedDataParallel):
        group = group_of(model)
    else:
        group = dist.group.WORLD if dist.is_initialized() else None
    sync = train_apart(model, optimizer, text, group=group, **settings)
    if isinstance(sync, EverySync):
        sync.count_steps_of_optimizer()
    return sync


def _wire(
    spec: EverySpec, model: nn.Module, group: dist.ProcessGroup, *, timeout_s: float, islands: IslandChoice
) -> Wire:
    dense = spec.codec is None
    matrices, exempt = Codec(spec.codec or DENSE_CODEC), Codec(DENSE_CODEC if dense else EXEMPT_CODEC)
    for turn in (True, False):
        if (dist.get_rank(group) == 0) == turn:
            for codec in (matrices, exempt):
                codec.warm()
        dist.barrier(group=group)
    exchange, lanes, network = _lanes(spec.every.exchange, group, timeout_s=timeout_s, islands=islands)
    queue = OrderedQueue("rounds", stages=max(STAGES, len(lanes) + 1))
    squeezed = _matrices(model) if spec.every.embeddings else squeezed_names(model)
    return Wire(matrices, exempt, exchange, lanes, squeezed, network, StageClock(), queue)


def _matrices(model: nn.Module) -> set[str]:
    return {name for p, name in parameter_names(model).items() if p.dim() > 1 and p.numel() >= TINY_ELEMENTS}


def _lanes(
    exchange: str, group: dist.ProcessGroup, *, timeout_s: float, islands: IslandChoice
) -> tuple[str, list[Lane], dict[str, Any]]:
    """The exchange and its lanes: by the ranks and islands, or the one that the text names, over all ranks alike."""
    if exchange == AUTO:
        laid = lay_lanes(group, islands, timeout_s=timeout_s, meter=None)
        return laid.exchange, laid.lanes, dict(laid.describe())
    kind = EXCHANGES.get(exchange, field="every.exchange")
    flat = Islands.flat(dist.get_world_size(group))
    if not kind.fits(flat):
        raise ConfigError(
            "This exchange needs islands.",
            field="every.exchange",
            found=exchange,
            expected=f"{AUTO!r}, which takes it where there are islands, or an exchange over any ranks",
            next_step="Remove the exchange from the text.",
        )
    ranks = dist.get_process_group_ranks(group)
    return exchange, [Lane(new_group(ranks, timeout_s)) for _ in kind.groups(flat)], {}


def _align(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Rank 0's parameters and buffers on all ranks, after a look whether they are of one kind."""
    tensors = [*model.parameters(), *model.buffers()]
    mine = [(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items()]
    seen: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(seen, mine, group=group)
    for rank, theirs in enumerate(seen):
        if theirs != seen[0]:
            differing = next((b for a, b in zip(seen[0], theirs, strict=False) if a != b), f"{len(theirs)} tensors")
            raise ConfigError(
                f"The models of rank 0 and rank {rank} differ.",
                field="model",
                found=str(differing),
                expected="the same names, shapes and dtypes on all ranks",
                next_step="Build the same model on every rank.",
            )
    with torch.no_grad():
        _broadcast_coalesced(group, [tensor.detach() for tensor in tensors], BROADCAST_BYTES, 0)


def _refuse_settings_of_gradients(**given: object) -> None:
    """Settings by name; None is of those that ask for nothing."""
    for name, found in given.items():
        if found is not None:
            raise ConfigError(
                "This setting is of gradients, and between rounds every rank keeps its own.",
                field=f"sync.{name}",
                found=found,
                expected="no such setting beside every(...)",
                next_step=f"Remove {name}, or use a codec without every(...).",
            )


def _without_optimizer(spec: EverySpec) -> ConfigError:
    return ConfigError(
        "Training apart follows the steps of an optimizer, and none was given.",
        field="optimizer",
        found=f"None, with {str(spec)!r}",
        expected="the optimizer over the model's parameters",
        next_step="Call trainingkit.compress(model, codec, optimizer=optimizer).",
    )


def _refuse_odd(names: list[str]) -> None:
    if names:
        raise ConfigError(
            "Parameters that fp32 cannot hold cannot be agreed on.",
            field="model",
            found=", ".join(names[:3]),
            expected="float32, bfloat16 or float16 parameters",
            next_step="Convert the model, for example with model.float().",
        )
