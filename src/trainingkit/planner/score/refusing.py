"""Why a row cannot be predicted: what is missing, what no run can have had, and what the planner does not model."""

from __future__ import annotations

import math

from trainingkit.core.errors import ConfigError
from trainingkit.planner.cluster import gpu_named
from trainingkit.planner.score.rows import Row
from trainingkit.planner.score.software import PRECISIONS, precision_of

SCHEDULE_NAMES = {"": "1f1b", "none": "1f1b", "1f1b": "1f1b", "interleaved-1f1b": "interleaved", "dualpipe": "zb-h1"}
SCHEDULE_NAMES |= {"zero-bubble": "zb-h1", "zero-bubble-1p (zbb)": "zb-h1", "zb-v": "zb-v"}
POSITIVE = (
    *("n_gpus", "gpus_per_node", "seq_len", "global_batch", "micro_batch", "tp", "pp", "dp", "cp", "ep"),
    *("virtual_pp", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "inter_node_gbps"),
)
"""Columns that are empty or hold a number above zero."""
RECOMPUTES = ("", "none", "selective", "full")


def why_not(row: Row) -> str:
    """A clause; empty where the row can be read."""
    return _no_number(row) or _unknown_word(row) or _lacks(row) or _contradicts(row)


def replicas(row: Row) -> int:
    """The data-parallel degree: as told, or what the other degrees leave of the devices; 0: not known."""
    told = row.whole("dp")
    if told:
        return told
    others = math.prod(row.whole(column) or 1 for column in ("tp", "pp", "cp"))
    devices = row.whole("n_gpus") or 0
    return devices // others if devices % others == 0 else 0


def _no_number(row: Row) -> str:
    for column in POSITIVE:
        value = row.number(column)
        if row.text(column) and (value is None or value <= 0):
            return f"{column} is {row.text(column)!r}, no number above zero"
    return ""


def _unknown_word(row: Row) -> str:
    if "offload" in row.text("zero_or_fsdp"):
        return "states in host memory are not modelled"
    precision = row.text("precision").lower().removeprefix("mx")
    if precision and not precision.startswith(PRECISIONS):
        return f"precision {row.text('precision')} is not known"
    if row.text("recompute").rstrip("?") not in RECOMPUTES:
        return f"recompute {row.text('recompute')} is not known"
    if row.text("schedule").lower().rstrip("?") not in SCHEDULE_NAMES:
        return f"schedule {row.text('schedule')} is not modelled"
    return ""


def _lacks(row: Row) -> str:
    if not (row.whole("tp") and row.whole("pp") and replicas(row)):
        return "degrees are missing"
    return "" if row.whole("global_batch") else "global batch is missing"


def _contradicts(row: Row) -> str:
    devices, degrees = row.whole("n_gpus"), [row.whole(column) or 1 for column in ("tp", "pp", "cp")]
    if devices and math.prod((*degrees, replicas(row))) != devices:
        return f"its degrees do not multiply to {devices} devices"
    return "its measured rate is above the device's data sheet" if _above_sheet(row) else ""


def _above_sheet(row: Row) -> bool:
    """Whether six flops per parameter and token exceed the peak: then batch, length or count is not what it says."""
    rate = row.number("tflops_6nd")
    try:
        return rate is not None and rate * 1e12 > gpu_named(row.text("gpu")).peak_rate(precision_of(row))
    except ConfigError:
        return False
