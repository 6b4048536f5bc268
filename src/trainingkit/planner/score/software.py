"""What the framework of a row did: by its notes and columns where they tell, else by the time and device it ran on.

Rows say little about software, and runs differ more by it than by hardware. Nothing here reads a measurement.
"""

from __future__ import annotations

import re
from dataclasses import replace

from trainingkit.planner.cluster import Gpu
from trainingkit.planner.layout import Software
from trainingkit.planner.score.rows import Row

EAGER_SHARDING = ("fsdp(FULL_SHARD)", "fsdp(SHARD_GRAD_OP)")
"""The first FSDP, whose users ran without a compiler."""
COMPILED_LOSS_YEAR = 2025
"""Since when PyTorch's own recipes compile the loss together with the head."""
EARLY_SHARE = 0.84
"""What the libraries of its time reached on Hopper, of today's best."""

PRECISIONS = ("fp8", "bf16", "fp16", "tf32", "fp32")
"""Begin of what a row may say of its products."""

CLASSIC = Software(
    flash=False,
    overlap=False,
    tp_overlap=0.0,
    blocking_p2p=True,
    host_us=58.0,
    fp32_grads=False,
    flat_gathers=True,
    double_grads=True,
    accumulate_passes=3.0,
)
"""Megatron-LM and DeepSpeed of 2019 to 2022: modules in Python, random states kept around each checkpoint."""

DEEPSPEED = replace(CLASSIC, accumulate_passes=6.0, scatter_sends=False, layer_wait_s=7e-3)
"""Its pipeline engine of 2021 and 2022. The wait is read off BLOOM's sweep, where a layer takes 7 to 12 ms more than
its work whatever the micro-batch; we do not know why."""


def precision_of(row: Row) -> str:
    """The precision of its products."""
    text = row.text("precision").lower()
    text = text.removeprefix("mx")
    return next((kind for kind in PRECISIONS if text.startswith(kind)), "bf16")


def is_classic(row: Row, gpu: Gpu) -> bool:
    """Frameworks of 2019 to 2022: fp16 on devices before Hopper."""
    return precision_of(row) in ("fp16", "tf32", "fp32") and not gpu.has("fp8")


def _year(row: Row) -> int:
    found = re.search(r"\b(20[12][0-9])\b", row.source)
    return int(found[1]) if found else 0


def softwares_of(row: Row, gpu: Gpu) -> list[tuple[Software, float]]:
    """What the framework did: by the notes where they tell, else by device and precision."""
    if gpu.has("fp8"):
        return [(_modern(row), 1.0)]
    wide = "fp32 grad" in row.text("precision")
    deepspeed = bool(shard_of(row)[0]) or not row.text("zero_or_fsdp")
    kind = DEEPSPEED if deepspeed and (row.whole("pp") or 1) > 1 else CLASSIC
    old = replace(kind, fp32_grads=wide, fused="amp" not in row.text("precision"))
    if is_classic(row, gpu) or wide:
        return [(old, 1.0)]
    wide = "pure" not in row.text("precision")
    new = Software(fused=False, tp_overlap=0.0, host_us=12.0, fp32_grads=wide, attention_share=0.75)
    new = replace(new, logit_bytes=_logit_bytes(row))
    if "flash" in row.text("notes"):
        return [(new, 1.0)]
    was_old = 0.8 if row.text("recompute") == "full" and (row.whole("pp") or 1) > 1 else 0.2
    half = (1 - was_old) / 2
    return [(new, half), (replace(new, fp32_grads=False), half), (replace(old, fp32_grads=True), was_old)]


def _modern(row: Row) -> Software:
    """Frameworks on Hopper and later: Megatron's line, or plain PyTorch with and without a compiler.

    NVIDIA's 8-bit recipes reduce gradients in 16 bits.
    """
    sharding, notes = row.text("zero_or_fsdp"), row.text("notes")
    early = sharding in EAGER_SHARDING
    plain = early or sharding in ("zero1", "zero2", "none")
    eager = "eager" in notes or (plain and "compile" not in notes and row.text("schedule") != "DualPipe")
    native = "fsdp" in sharding and "megatron" not in sharding
    narrow = "pure" in row.text("precision") or (precision_of(row) == "fp8" and "dist-opt" in sharding)
    return Software(
        fused=not eager,
        fp32_grads=not narrow,
        host_us=12.0 if eager else 6.0,
        wide_norms=eager,
        logit_bytes=_logit_bytes(row),
        attention_share=(0.5 if eager else 0.65) if native else 1.0,
        gemm_share=EARLY_SHARE if early else 0.92,
        expert_overlap=0.85 if row.text("schedule") == "DualPipe" else 0.4,
    )


def _logit_bytes(row: Row) -> float:
    """By the loss: fused in place (the first FSDP's users), plain or compiled (PyTorch's recipes), Megatron's."""
    sharding = row.text("zero_or_fsdp")
    if sharding in EAGER_SHARDING:
        return 6.0
    if "fsdp2" in sharding:
        return 12.0 if _year(row) < COMPILED_LOSS_YEAR else 4.0
    return 8.0


def shard_of(row: Row) -> tuple[int, int]:
    """Stage and group of sharding. Under a pipeline FSDP2 keeps what it has gathered, so only states are shared."""
    text = row.text("zero_or_fsdp").lower()
    within = re.search(r"within (\d+)", text)
    group = int(within[1]) if within else 0
    if "fsdp2" in text and (row.whole("pp") or 1) > 1:
        return 1, group
    if "zero3" in text or ("fsdp" in text and "grad_op" not in text):
        return 3, group
    if "zero2" in text or "grad_op" in text:
        return 2, group
    return (1, group) if "zero1" in text else (0, 0)
