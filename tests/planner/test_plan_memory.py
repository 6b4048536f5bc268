"""Memory: states by ZeRO stage, activations against the paper's formula, and who holds most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainingkit.planner.cluster import cluster_of
from trainingkit.planner.layout import Job, Layout, Recompute, Software
from trainingkit.planner.memory import peak_memory, stage_memory
from trainingkit.planner.memory.activations import layer_bytes
from trainingkit.planner.models import Transformer, find_model

CLASSIC = Software(flash=False, fp32_grads=False)
GPT = find_model("gpt3-175b")
JOB = Job(GPT, 2048, 1536, "fp16", CLASSIC)
WHERE = cluster_of({"gpu": "a100-80g", "nodes": 128, "per_node": 8})


@pytest.mark.parametrize(
    ("recompute", "sequence"), [("none", False), ("none", True), ("selective", True), ("full", True)]
)
@pytest.mark.parametrize("tp", [1, 8])
def test_activations_are_the_papers(recompute: Recompute, sequence: bool, tp: int) -> None:
    """Korthikanti et al. 2022, table 2, with s b h = tokens * hidden."""
    assert isinstance(GPT, Transformer)
    layout = Layout(tp=tp, micro_batch=2, recompute=recompute, sequence_parallel=sequence)
    s, b, h, a, t = 2048, 2, GPT.hidden, GPT.heads, tp
    wanted = {
        ("none", False): s * b * h * (10 + 24 / t + 5 * a * s / (h * t)),
        ("none", True): s * b * h / t * (34 + 5 * a * s / h),
        ("selective", True): 34 * s * b * h / t,
        ("full", True): 2 * s * b * h / t,
    }
    assert layer_bytes(JOB, layout).kept == pytest.approx(wanted[recompute, sequence], rel=1e-6)


def test_states_by_stage_of_sharding() -> None:
    """ZeRO: 16 bytes a parameter in all; stage 1 shards 12, stage 2 14, stage 3 16 of them."""
    model = find_model("llama3-8b")
    job = Job(model, 4096, 64, software=Software(fp32_grads=False), state_bytes=8)
    n = model.params()
    for shard, bytes_each in ((0, 16), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)):
        memory = peak_memory(job, WHERE, Layout(dp=64, shard=shard, recompute="full"))
        assert memory.weights + memory.gradients + memory.states == pytest.approx(bytes_each * n, rel=0.01)


def test_more_sharding_never_needs_more() -> None:
    job = Job(find_model("llama3-8b"), 4096, 64)
    states = [peak_memory(job, WHERE, Layout(dp=64, shard=shard, recompute="full")) for shard in (0, 1, 2)]
    assert states[0].total > states[1].total > states[2].total


def test_the_first_stage_holds_most_micro_batches_and_the_last_the_logits() -> None:
    layout = Layout(tp=8, pp=8, dp=16, recompute="full")
    first, last = (stage_memory(JOB, WHERE, layout, stage) for stage in (0, 7))
    assert first.activations > last.activations
    assert first.logits == 0 < last.logits


def test_the_bar_is_around_the_estimate_and_fits_by_its_upper_end() -> None:
    memory = peak_memory(JOB, WHERE, Layout(tp=8, pp=8, dp=16, recompute="full"))
    assert memory.low < memory.total < memory.high


def test_published_sizes_of_gpt3() -> None:
    """Korthikanti et al. 2022, figure 1: 175 B on tp 8, pp 8: 45.6 GiB of states, 12.4 of activations."""
    job = replace(JOB, global_batch=64, software=replace(CLASSIC, fp32_grads=True))
    piped = Layout(tp=8, pp=8, schedule="interleaved", virtual=3)
    memory = peak_memory(job, WHERE, replace(piped, recompute="selective", sequence_parallel=True))
    states = (memory.weights + memory.gradients + memory.states) / 2**30
    assert states == pytest.approx(45.6, rel=0.12)
    assert memory.activations / 2**30 == pytest.approx(12.4, rel=0.08)
