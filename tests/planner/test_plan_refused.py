"""Models, clusters and numbers that cannot be: each refused by its field, and never a plan that cannot launch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from planner_rows import GPT, write

from trainingkit.core.errors import TrainingKitError
from trainingkit.planner.asking import MOST, plan
from trainingkit.planner.models.huggingface import from_config
from trainingkit.planner.score.scoring import score_file
from trainingkit.planner.search.space import divisors

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", "4096"),
        ("num_attention_heads", 0),
        ("max_position_embeddings", "x"),
        ("max_position_embeddings", -1),
        ("intermediate_size", [1]),
        ("vocab_size", 1.5),
        ("num_hidden_layers", -4),
        ("num_key_value_heads", 5),
        ("num_local_experts", 8),
    ],
)
def test_a_size_that_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(TrainingKitError, match=r"(?s)next step") as caught:
        from_config("it", {**LLAMA, field: value})
    named = "num_experts_per_tok" if field == "num_local_experts" else field
    assert caught.value.field == f"model.{named}"


def test_no_plan_splits_a_width_that_does_not_divide() -> None:
    odd = from_config("odd", {**LLAMA, "intermediate_size": 11009})
    even = from_config("even", LLAMA)
    assert any(each.layout.tp > 1 for each in plan(even, "h100:1x8", top=200, global_batch=8).plans)
    assert all(each.layout.tp == 1 for each in plan(odd, "h100:1x8", top=200, global_batch=8).plans)


@pytest.mark.parametrize(
    "device",
    [{"memory_gib": {"a": 1}}, {"peak": {"bf16": 0}}, {"achievable": {"bf16": 0}}, {"achievable": {"bf16": 5000.0}}],
)
def test_a_device_that_cannot_be_is_refused(device: dict[str, Any]) -> None:
    with pytest.raises(TrainingKitError, match=r"cluster\.device"):
        plan("llama3-8b", {"gpu": "h100", "nodes": 2, "per_node": 8, "device": device})


def test_numbers_beyond_all_measure_are_refused_at_once() -> None:
    with pytest.raises(TrainingKitError, match="nodes"):
        plan("llama3-8b", {"gpu": "h100", "nodes": 10**8, "per_node": 8})
    with pytest.raises(TrainingKitError, match="--global-batch"):
        plan("llama3-8b", "h100:2x8", global_batch=MOST + 1)
    with pytest.raises(TrainingKitError, match="positions"):
        plan("gpt2", "h100:1x8", seq=5000)


@pytest.mark.parametrize(("model", "cluster"), [("llama3-70b", "rtx4090:1x8"), ("llama3-8b", "rtx4090:1x1")])
def test_as_many_nodes_as_it_says_do(model: str, cluster: str) -> None:
    with pytest.raises(TrainingKitError, match="No plan fits") as caught:
        plan(model, cluster)
    found = re.search(r"Use (\d+) nodes", str(caught.value))
    assert found is not None, str(caught.value)
    gpu, shape = cluster.split(":")
    assert plan(model, f"{gpu}:{found[1]}x{shape.split('x')[1]}").plans


def test_where_no_number_of_nodes_would_do_it_says_so() -> None:
    tiny = {"gpu": "h100", "nodes": 1, "per_node": 2, "device": {"memory_gib": 1.0}}
    with pytest.raises(TrainingKitError, match="times as many nodes would not do"):
        plan("llama3-8b", tiny)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n_gpus", "-512"),
        ("n_gpus", "inf"),
        ("tp", "nan"),
        ("tp", "7"),
        ("seq_len", "0"),
        ("micro_batch", "0"),
        ("step_time_s", "-3"),
        ("step_time_s", "nan"),
        ("inter_node_gbps", "-1"),
        ("recompute", "sideways"),
        ("schedule", "dance"),
        ("precision", "fp5"),
    ],
)
def test_a_row_that_cannot_be_is_excluded_with_its_reason(tmp_path: Path, column: str, value: str) -> None:
    score = score_file(write(tmp_path / "runs.csv", GPT, {**GPT, "id": "B2", column: value}))
    assert [(row.name, bool(row.why)) for row in score.excluded] == [("B2", True)]
    assert [one.row.name for one in score.predictions] == ["A1"]


@pytest.mark.parametrize("n", [1, 2, 36, 97, 1024, 999_983])
def test_divisors_are_all_of_them(n: int) -> None:
    assert divisors(n) == sorted(d for d in range(1, n + 1) if n % d == 0)
