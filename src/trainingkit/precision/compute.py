"""The compute type of forward: bf16 autocast where the hardware multiplies bf16 natively, else fp32.

Parameters, gradients and optimizer state stay fp32 in either case.
"""

from __future__ import annotations

import contextlib

import torch

from trainingkit.precision.section import PrecisionSection

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def choose_compute(section: PrecisionSection, device: torch.device, *, cpu_has_bf16: bool) -> tuple[str, str]:
    """The compute type ("bf16" or "fp32") and the reason for it in one sentence."""
    if section.compute != "auto":
        return section.compute, "set in the recipe"
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bf16", "this GPU multiplies bf16") if fast else ("fp32", "this GPU does not multiply bf16 natively")
    if cpu_has_bf16:
        return "bf16", "this processor multiplies bf16 natively"
    return "fp32", "this processor would only emulate bf16"


def forward_context(compute: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context in which forward and loss run."""
    if compute == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[compute])
