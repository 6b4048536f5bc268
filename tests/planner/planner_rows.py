"""A measured run as a row, and a file of such rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

GPT = {
    "id": "A1",
    "source": "Somebody (2021)",
    "model": "GPT 39.1B",
    "params_b": "39.1",
    "layers": "48",
    "hidden": "8192",
    "ffn_hidden": "32768",
    "heads": "64",
    "kv_heads": "64",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100-80G-SXM",
    "n_gpus": "512",
    "gpus_per_node": "8",
    "inter_node_gbps": "1600",
    "tp": "8",
    "pp": "2",
    "dp": "32",
    "cp": "1",
    "ep": "1",
    "zero_or_fsdp": "none",
    "virtual_pp": "1",
    "micro_batch": "4",
    "global_batch": "1536",
    "precision": "fp16",
    "recompute": "full",
    "schedule": "1F1B",
    "step_time_s": "14.45",
    "outcome": "ok",
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as handle:
        writer = csv.DictWriter(handle, names)
        writer.writeheader()
        writer.writerows(rows)
    return path
