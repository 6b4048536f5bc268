"""The doors: from a model and a codec to the synchroniser that fits."""

from __future__ import annotations

import datetime

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainingkit.codec import Codec, parse
from trainingkit.core.errors import ConfigError
from trainingkit.exchange import EXCHANGES, pick_exchange
from trainingkit.exchange.lane import Lane
from trainingkit.sync.buckets import Codecs
from trainingkit.sync.contract import Sync
from trainingkit.sync.exempt import odd_names, sparse_names, squeezed_names
from trainingkit.sync.plain import PlainDDP, SingleProcess, group_of
from trainingkit.sync.section import NO_CODEC
from trainingkit.sync.squeezed import Squeezed

WARMUP_CODEC = "all|int8(block=64)"
EXEMPT_CODEC = "all|bf16"
TOPK_WARMUP_STEPS = 40
REBUILD_STEPS = 2


def squeeze(
    model: nn.Module,
    codec: str,
    *,
    warmup_steps: int | None = None,
    timeout_s: float = 300.0,
    normalise: bool = False,
) -> Sync:
    """A synchroniser over a model in DistributedDataParallel. All ranks call it, before the first forward.

    With one rank, or codec "none", no hook is registered and training stays what it is, bit for bit.

    Args:
        codec: for example "all|int4(block=64)" or "topk(density=0.05, chunk=4096)|int4".
        warmup_steps: steps that travel in 8 bits first; None: 40 for a codec that selects, else none.
        timeout_s: deadline of one collective.
        normalise: code matrices in units of the root of their agreed second moment (`sync.moment`).

    Raises:
        ConfigError: not a DDP model, sparse gradients, a codec that cannot be read, or a hook that is there already.
    """
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            "Only a model in DistributedDataParallel can be squeezed.",
            field="model",
            found=type(model).__name__,
            expected="torch.nn.parallel.DistributedDataParallel",
            next_step="Wrap it first: model = DistributedDataParallel(model).",
        )
    if codec == NO_CODEC:
        return PlainDDP(model)
    spec = parse(codec)
    group = group_of(model)
    ranks = dist.get_world_size(group)
    if ranks == 1:
        return SingleProcess(model)
    _refuse(
        sparse_names(model.module),
        "Sparse gradients cannot be squeezed.",
        expected="dense gradients",
        remedy="Build the embedding with sparse=False",
    )
    _refuse(
        odd_names(model.module),
        "Gradients that fp32 cannot hold cannot be squeezed.",
        expected="float32, bfloat16 or float16 parameters",
        remedy="Convert the model, for example with model.float()",
    )
    codecs = Codecs(Codec(spec), Codec(WARMUP_CODEC), Codec(EXEMPT_CODEC), pick_exchange(ranks))
    _warm(codecs, group)
    count = EXCHANGES.get(codecs.exchange).LANES
    lanes = [Lane(_new_group(group, timeout_s)) for _ in range(count)]
    default_warmup = TOPK_WARMUP_STEPS if spec.selection.indexed else 0
    try:
        return Squeezed(
            model,
            codecs,
            lanes,
            squeezed=squeezed_names(model.module),
            warmup_steps=default_warmup if warmup_steps is None else warmup_steps,
            dense_steps=REBUILD_STEPS if rebuilds_buckets(model) else 0,
            normalise=normalise,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"DDP does not take the hook: {error}",
            field="model",
            found="a DistributedDataParallel with a hook",
            expected="one that has none",
            next_step="Wrap the model anew; a DDP object takes one hook in its life.",
        ) from error


def rebuilds_buckets(ddp: DistributedDataParallel) -> bool:
    """Whether DDP will put its buckets in another order after the first backward."""
    return bool(ddp.static_graph) or not ddp.find_unused_parameters


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


def _warm(codecs: Codecs, group: dist.ProcessGroup) -> None:
    """Rank 0 compiles the kernels, then the others load them from the disk cache."""
    for turn in (True, False):
        if (dist.get_rank(group) == 0) == turn:
            for codec in (codecs.main, codecs.warmup, codecs.exempt):
                codec.warm()
        dist.barrier(group=group)


def _new_group(group: dist.ProcessGroup, timeout_s: float) -> dist.ProcessGroup:
    """A Gloo group over the same ranks. Where they are not all of the job, the others need not call."""
    ranks = dist.get_process_group_ranks(group)
    made = dist.new_group(
        ranks,
        backend="gloo",
        timeout=datetime.timedelta(seconds=timeout_s),
        use_local_synchronization=len(ranks) < dist.get_world_size(),
    )
    assert isinstance(made, dist.ProcessGroup)
    return made
