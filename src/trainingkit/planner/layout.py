"""The nouns of a plan: the job to be done, the software that does it, and the layout that is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainingkit.planner.models import ConvNet, Model, Transformer

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class Software:
    """What the training framework does and does not do; today's by default.

    Args:
        flash: fused attention that keeps no scores.
        fused: chains of elementwise operations are one kernel each.
        overlap: gradients travel during the backward pass, and parameters during the next forward.
        tp_overlap: share of the tensor-parallel exchange that hides behind matrix products.
        expert_overlap: share of the experts' exchange that hides behind other work.
        blocking_p2p: a stage waits for its message to a neighbour before it goes on.
        host_us: host time for one kernel, microseconds.
        fp32_grads: gradients are summed (and sent) in fp32.
        gemm_share: share of the best matrix rate that a long run sustains; see `cost.gemm`.
        attention_share: rate of its fused attention, over that of the best kernels.
        accumulate_passes: times that a micro-batch's gradients go through memory to be added to the others.
        scatter_sends: tensor-parallel ranks send a part each to the next stage; else all send the whole.
        layer_wait_s: seconds that a layer's backward waits in each micro-batch, whatever its size.
        wide_norms: norms, rotary embedding and activation keep copies in fp32, as plain PyTorch does.
        logit_bytes: memory of one logit: 12 where the loss is plain, in 16 and 32 bits with gradients; 8 with a fused
            loss; 4 where a compiler keeps it in 16 bits.
        double_grads: sums in fp32 stand beside gradients in 16 bits.
        flat_gathers: sharded parameters travel tensor by tensor on one network card, hardly beside the work.
    """

    flash: bool = True
    fused: bool = True
    overlap: bool = True
    tp_overlap: float = 0.6
    expert_overlap: float = 0.4
    blocking_p2p: bool = False
    host_us: float = 6.0
    fp32_grads: bool = True
    gemm_share: float = 0.92
    attention_share: float = 1.0
    accumulate_passes: float = 1.0
    layer_wait_s: float = 0.0
    wide_norms: bool = False
    logit_bytes: float = 8.0
    double_grads: bool = False
    flat_gathers: bool = False
    scatter_sends: bool = True


@dataclass(frozen=True)
class Job:
    """What is to be trained: a model, a batch, a precision.

    Args:
        seq: tokens per sample (1 for images).
        global_batch: samples per optimizer step.
        state_bytes: optimizer bytes per parameter beside weight and gradient: fp32 master and two moments.
    """

    model: Model
    seq: int
    global_batch: int
    precision: str = "bf16"
    software: Software = field(default_factory=Software)
    state_bytes: int = 12

    @property
    def width(self) -> int:
        """Bytes of a value in activations and working weights."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def grad_bytes(self) -> int:
        """Bytes of a gradient value, as it is kept and sent."""
        return 4 if self.software.fp32_grads or self.width == 4 else 2

    @property
    def kept_grad_bytes(self) -> int:
        """Bytes of a gradient value in memory; frameworks that sum apart keep the 16-bit one too."""
        return self.grad_bytes + (2 if self.software.double_grads and self.software.fp32_grads else 0)

    @property
    def drops(self) -> bool:
        """Whether it trains with dropout: older models do, under software without fused attention."""
        return isinstance(self.model, Transformer) and self.model.dropout and not self.software.flash

    @property
    def is_conv(self) -> bool:
        """Whether the model is a convolutional one."""
        return isinstance(self.model, ConvNet)

    @property
    def tokens(self) -> int:
        """Tokens (or images) of an optimizer step."""
        return self.global_batch * self.seq


@dataclass(frozen=True, order=True)
class Layout:
    """Where the model lives and in which order it is worked through.

    Args:
        tp, pp, dp, cp, ep: degrees of tensor, pipeline, data, context and expert parallelism; experts are spread over
            `dp * cp`.
        micro_batch: samples that one replica works on at a time.
        schedule: an entry of `schedule.SCHEDULES`.
        virtual: chunks of layers per stage.
        recompute: what backward computes again.
        shard: 0 none, 1 optimizer states, 2 and gradients, 3 and parameters.
        shard_group: over so many ranks; 0: the whole data-parallel group.
        sequence_parallel: what tensor parallelism would replicate is split along the sequence.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    schedule: str = "1f1b"
    virtual: int = 1
    recompute: Recompute = "none"
    shard: int = 0
    shard_group: int = 0
    sequence_parallel: bool = False
    codec: str = "none"
    every: int = 1

    @property
    def devices(self) -> int:
        """Devices that it uses."""
        return self.tp * self.pp * self.dp * self.cp

    def micro_batches(self, global_batch: int) -> int:
        """Micro-batches per step of one replica."""
        return max(1, round(global_batch / (self.dp * self.micro_batch)))

    @property
    def shard_over(self) -> int:
        """Ranks that share what is sharded."""
        return (self.shard_group or self.dp * self.cp) if self.shard else 1
