"""A convolutional network on one device: convolutions as matrix products, the rest by bytes."""

from __future__ import annotations

from trainingkit.planner.cluster.spec import Cluster
from trainingkit.planner.cost.chip import chip_of
from trainingkit.planner.cost.gemm import Chip, gemm_seconds, stream_seconds
from trainingkit.planner.layout import Job, Layout
from trainingkit.planner.models.convnet import Conv, ConvNet

CONV_SHARE = 0.62
"""Share of a plain product's rate that a convolution kernel with a window reaches."""
FORWARD_PASSES = 4.0
"""Times that each output value goes through memory in forward: written, statistics, normalised, clipped."""
BACKWARD_PASSES = 7.0
LAYOUT_PASSES = 3.0
"""Turning channels last and back, which matrix units need and 32-bit code does not keep."""
WINOGRAD = 2.0
"""Windows of three by three on scalar units take so many times fewer products (Lavin and Gray 2015)."""
KERNELS_PER_CONV = 5


def conv_time(job: Job, cluster: Cluster, layout: Layout) -> tuple[float, float]:
    """Forward and backward seconds of one micro-batch."""
    model, images, chip = job.model, layout.micro_batch, chip_of(job, cluster.gpu)
    assert isinstance(model, ConvNet)
    products = [_conv(chip, conv, images, job) for conv in model.convs]
    values = sum(conv.side**2 * conv.outside for conv in model.convs) * images * float(job.width)
    kernels = len(model.convs) * KERNELS_PER_CONV
    turned = LAYOUT_PASSES if job.precision == "tf32" else 0.0
    forward = sum(products) + stream_seconds(chip, (FORWARD_PASSES + turned) * values, kernels)
    backward = 2 * sum(products) + stream_seconds(chip, (BACKWARD_PASSES + 2 * turned) * values, 2 * kernels)
    host = kernels * job.software.host_us * 1e-6
    return max(forward, host), max(backward, 1.5 * host)


def _conv(chip: Chip, conv: Conv, images: int, job: Job) -> float:
    rows = images * conv.side**2
    share = CONV_SHARE if conv.kernel > 1 else 0.8
    share *= WINOGRAD if job.precision == "fp32" and conv.kernel == 3 else 1.0
    slower = Chip(chip.rate * share, chip.units, chip.memory, chip.scalar)
    inner = max(32, -(-conv.inner // 32) * 32)
    return gemm_seconds(slower, rows, conv.outside, inner, 1, job.width if conv.kernel == 1 else 1)
