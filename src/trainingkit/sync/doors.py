"""The doors: from a model and a codec to the synchroniser that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainingkit.codec import Codec, parse
from trainingkit.core.errors import ConfigError
from trainingkit.core.logging import LOG
from trainingkit.exchange.meter import WireMeter
from trainingkit.kernels.moments import warm as warm_moments
from trainingkit.sync.auto.adaptive import Adaptive
from trainingkit.sync.auto.ladder import PLAIN, Rung, start_within
from trainingkit.sync.auto.values import CANDIDATES, check_adaptive
from trainingkit.sync.buckets import Codecs
from trainingkit.sync.contract import Sync
from trainingkit.sync.exempt import odd_names, sparse_names, squeezed_names
from trainingkit.sync.going.switch import Going
from trainingkit.sync.lanes import Laid, lay_lanes, new_group
from trainingkit.sync.pilot import Fixed, Pilot
from trainingkit.sync.piloting import AutoSettings, make_pilot, refuse_extras
from trainingkit.sync.plain import PlainDDP, SingleProcess, group_of
from trainingkit.sync.section import AUTO_CODEC, AUTO_ISLANDS, NO_CODEC, IslandChoice
from trainingkit.sync.squeezed import Squeezed

EXEMPT_CODEC = "all|bf16"
REBUILD_STEPS = 2


def squeeze(
    model: nn.Module,
    codec: str,
    *,
    warmup_steps: int | None = None,
    timeout_s: float = 300.0,
    normalise: bool = False,
    islands: IslandChoice = AUTO_ISLANDS,
    auto: AutoSettings | None = None,
    adaptive: bool = False,
    optimizer: Optimizer | None = None,
) -> Sync:
    """A synchroniser over a model in DistributedDataParallel. All ranks call it, before the first forward.

    With one rank, or codec "none", no hook is registered and training stays what it is, bit for bit.

    Args:
        codec: for example "all|int4(block=64)" or "topk(density=0.05, chunk=4096)|int4"; "auto": by the controller.
        warmup_steps: steps that travel in 8 bits first; None: 40 for a codec that selects, 10 for a normalised one of
            at most 3 bits, else none.
        timeout_s: deadline of one collective.
        normalise: code matrices in units of the root of their agreed second moment (`sync.moment`).
        islands: which ranks share a fast network: ranks by island, "auto" (measured, with four and more ranks on
            several hosts) or "off".
        auto: what the controller may do.
        adaptive: on a normalised wire, each bucket of matrices may travel in other numbers than the codec's, with no
            more bytes in all (`sync.auto.adaptive`).
        optimizer: over the model's parameters, where the loop calls `commit` or `abort` after each of its steps: then
            "auto" may let ranks train apart (`sync.going`).

    Raises:
        ConfigError: not a DDP model, sparse gradients, a codec that cannot be read or not be adapted, or a hook that
            is there already.
    """
    if not isinstance(model, DistributedDataParallel):
        raise _not_in_ddp(model)
    if codec == NO_CODEC:
        return PlainDDP(model)
    refuse_extras(codec, warmup_steps, normalise=normalise, auto=auto)
    if codec != AUTO_CODEC:
        parse(codec)
        codec = check_adaptive(codec, normalise=normalise) if adaptive else codec
    group = group_of(model)
    if auto is None or auto.replay is None:
        codec = _where_clocks_tell(codec, model, group, auto or AutoSettings(), adaptive=adaptive)
    if codec == NO_CODEC:
        return PlainDDP(model)
    if dist.get_world_size(group) == 1:
        return SingleProcess(model)
    _refuse_gradients(model.module)
    codecs: dict[str, Codec] = {}

    def prepare(rung: Rung) -> None:
        if rung.codec in codecs:
            _warm([codecs[rung.codec]], group)

    pilot = make_pilot(
        codec,
        warmup_steps=warmup_steps,
        normalise=normalise,
        auto=auto or AutoSettings(shared=shared_by(model)),
        group=lambda: new_group(dist.get_process_group_ranks(group), timeout_s),
        prepare=prepare,
        apart=optimizer is not None,
    )
    codecs |= {name: Codec(name) for name in (*_codecs_of(pilot.rungs), *_candidates(adaptive))}
    exempt = Codec(EXEMPT_CODEC)
    _warm_early(codecs, exempt, pilot, group, adaptive=adaptive)
    meter = WireMeter(active=pilot.watches)
    laid = lay_lanes(group, islands, timeout_s=timeout_s, meter=meter)
    squeezed = _hooked(model, Codecs(codecs, exempt, laid.exchange), laid, pilot, meter, adaptive=adaptive)
    if optimizer is not None and any(rung.apart for rung in pilot.rungs):
        return Going(squeezed, optimizer)
    return squeezed


def _hooked(
    model: DistributedDataParallel, codecs: Codecs, laid: Laid, pilot: Pilot, meter: WireMeter, *, adaptive: bool
) -> Squeezed:
    """The synchroniser in DDP's hook. Raises ConfigError where there is a hook already."""
    try:
        return Squeezed(
            model,
            codecs,
            laid.lanes,
            squeezed=squeezed_names(model.module),
            pilot=pilot,
            meter=meter,
            network=laid.describe(),
            values=Adaptive(active=adaptive),
            dense_steps=REBUILD_STEPS if rebuilds_buckets(model) else 0,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"DDP does not take the hook: {error}",
            field="model",
            found="a DistributedDataParallel with a hook",
            expected="one that has none",
            next_step="Wrap the model anew; a DDP object takes one hook in its life.",
        ) from error


def _not_in_ddp(model: nn.Module) -> ConfigError:
    return ConfigError(
        "Only a model in DistributedDataParallel can be squeezed.",
        field="model",
        found=type(model).__name__,
        expected="torch.nn.parallel.DistributedDataParallel",
        next_step="Wrap it first: model = DistributedDataParallel(model).",
    )


def _candidates(adaptive: bool) -> Sequence[str]:
    return CANDIDATES if adaptive else ()


def _warm_early(
    codecs: Mapping[str, Codec], exempt: Codec, pilot: Pilot, group: dist.ProcessGroup, *, adaptive: bool
) -> None:
    """Compile what may travel before the first move; what a later rung needs is compiled when it is chosen."""
    early = _codecs_of(pilot.rungs if isinstance(pilot, Fixed) else (pilot.at(0),))
    wanted = dict.fromkeys((*early, *_candidates(adaptive)))
    moments = any(rung.normalise for rung in pilot.rungs)
    _warm([*(codecs[name] for name in wanted), exempt], group, moments=moments)


def _codecs_of(rungs: Sequence[Rung]) -> list[str]:
    return [rung.codec for rung in rungs if rung.codec != PLAIN]


def _where_clocks_tell(
    codec: str, model: nn.Module, group: dist.ProcessGroup, auto: AutoSettings, *, adaptive: bool
) -> str:
    """The codec; on a GPU, whose kernels run behind the clock that the controller reads, where "auto" would begin."""
    if codec != AUTO_CODEC or next(model.parameters()).device.type == "cpu":
        return codec
    first = start_within(max_ratio=auto.max_ratio, min_density=auto.min_density).codec
    if dist.get_rank(group) == 0:
        LOG.warning("on a GPU codec 'auto' stays at %s: its timing has not been verified there", first)
        if adaptive:
            LOG.warning("sync.adaptive has no effect at %s, which is not normalised", first)
    return first


def shared_by(model: nn.Module) -> float:
    """Which part of the codecs' seconds computing loses: all of it on a CPU, whose cores both use, nothing on a GPU."""
    return 1.0 if next(model.parameters()).device.type == "cpu" else 0.0


def rebuilds_buckets(ddp: DistributedDataParallel) -> bool:
    """Whether DDP will put its buckets in another order after the first backward."""
    return bool(ddp.static_graph) or not ddp.find_unused_parameters


def _refuse_gradients(model: nn.Module) -> None:
    """Raise ConfigError for parameters whose gradients no codec can carry."""
    _refuse(
        sparse_names(model),
        "Sparse gradients cannot be squeezed.",
        expected="dense gradients",
        remedy="Build the embedding with sparse=False",
    )
    _refuse(
        odd_names(model),
        "Gradients that fp32 cannot hold cannot be squeezed.",
        expected="float32, bfloat16 or float16 parameters",
        remedy="Convert the model, for example with model.float()",
    )


def _refuse(names: list[str], problem: str, *, expected: str, remedy: str) -> None:
    if not names:
        return
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    raise ConfigError(
        problem,
        field="model",
        found=", ".join(names[:3]) + more,
        expected=expected,
        next_step=f"{remedy}, or use codec 'none'.",
    )


def _warm(codecs: Sequence[Codec], group: dist.ProcessGroup, *, moments: bool = False) -> None:
    """Rank 0 compiles the kernels, then the others load them from the disk cache."""
    for turn in (True, False):
        if (dist.get_rank(group) == 0) == turn:
            for codec in codecs:
                codec.warm()
            if moments:
                warm_moments()
        dist.barrier(group=group)
