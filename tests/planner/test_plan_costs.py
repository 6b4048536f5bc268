"""Physics that may not be violated: no rate above the device's, nothing slower on a faster link, published anchors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.planner.cluster import Cluster, cluster_of, gpu_named, gpu_names
from trainingkit.planner.cost import predict
from trainingkit.planner.cost.chip import chip_of
from trainingkit.planner.cost.collective import BUCKET_BYTES, HOP_S, Group, gather_seconds, group_of, reduce_seconds
from trainingkit.planner.cost.gemm import gemm_seconds
from trainingkit.planner.cost.stages import deal
from trainingkit.planner.layout import Job, Layout, Software
from trainingkit.planner.models import find_model

A100 = gpu_named("a100-80g")
GPT3 = Job(find_model("gpt3-175b"), 2048, 1536)
CLASSIC = Software(flash=False, overlap=False, tp_overlap=0.0, blocking_p2p=True, fp32_grads=False)


def cluster(nodes: int, **more: object) -> Cluster:
    return cluster_of({"gpu": "a100-80g", "nodes": nodes, "per_node": 8, **more})


@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(8, 20000), st.integers(1, 8))
@settings(deadline=None, max_examples=100)
def test_no_product_is_faster_than_rate_or_memory(m: int, n: int, k: int, batch: int) -> None:
    chip = chip_of(GPT3, A100)
    seconds = gemm_seconds(chip, m, n, k, batch)
    assert seconds * chip.rate >= 2.0 * m * n * k * batch
    assert seconds * chip.memory >= 2.0 * batch * (m * k + k * n + m * n)


def test_a_wave_more_costs_a_wave() -> None:
    """108 tiles fill an A100 once; one row of tiles more takes nearly twice as long."""
    chip = chip_of(GPT3, A100)
    full = gemm_seconds(chip, 256 * 12, 128 * 9, 4096)
    more = gemm_seconds(chip, 256 * 12, 128 * 10, 4096)
    assert 1.05 < more / full <= 2.0


def test_odd_lengths_miss_the_matrix_units() -> None:
    chip = chip_of(GPT3, A100)
    assert gemm_seconds(chip, 2048, 2048, 108, 16) > 5 * gemm_seconds(chip, 2048, 2048, 112, 16)


def test_ring_formulas() -> None:
    where = cluster(4)
    group = group_of(where, 8, 1)
    assert group == Group(8, 8)
    big = 1e12
    hops = big / BUCKET_BYTES * 8 * HOP_S
    assert gather_seconds(where, group, big) == pytest.approx(7 / 8 * big / 235e9 + hops, rel=1e-6)
    assert reduce_seconds(where, group, big) == pytest.approx(2 * 7 / 8 * big / 235e9, rel=1e-3)
    assert group_of(where, 4, 8) == Group(4, 1)
    assert reduce_seconds(where, group_of(where, 32, 1), big) > reduce_seconds(where, group, big)


@given(st.sampled_from([50.0, 200.0, 800.0, 1600.0]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([0, 1, 3]))
@settings(deadline=None, max_examples=20)
def test_a_faster_network_is_never_slower(gbit: float, tp: int, shard: int) -> None:
    layout = Layout(tp=tp, pp=4, dp=128 // (tp * 4), recompute="full", shard=shard)
    job = replace(GPT3, global_batch=512)
    slow, fast = (predict(job, cluster(16, node_gbit=rate), layout).step_s for rate in (gbit, 2 * gbit))
    assert fast <= slow


@pytest.mark.parametrize("name", gpu_names())
def test_achievable_is_below_the_sheet(name: str) -> None:
    gpu = gpu_named(name)
    for precision, rate in gpu.achievable.items():
        assert rate <= gpu.peak[precision]


def test_layers_are_never_lost() -> None:
    assert deal(7, 2, 2, folded=True) == ((2, 1), (2, 2))
    for layers, stages, chunks in ((78, 12, 1), (126, 9, 7), (80, 8, 5), (5, 4, 1), (96, 5, 3)):
        counts = [sum(line) for line in deal(layers, stages, chunks)]
        assert sum(counts) == layers
        assert max(counts) - min(counts) <= chunks


def test_parts_add_up() -> None:
    time = predict(GPT3, cluster(128), Layout(tp=8, pp=8, dp=16, recompute="full"))
    parts = (time.busy_s, time.bubble_s, time.exchange_s, time.update_s, time.straggle_s)
    assert time.step_s == pytest.approx(sum(parts))
    assert all(part >= 0 for part in parts)


def test_published_runs_of_megatron() -> None:
    """Narayanan et al. 2021, table 2: 175 B on 384, 768 and 1,536 A100s, 76.8, 39.4 and 20.8 s a step."""
    job = replace(GPT3, precision="fp16", software=CLASSIC)
    for dp, measured in ((4, 76.78), (8, 39.42), (16, 20.83)):
        layout = Layout(tp=8, pp=12, dp=dp, recompute="full")
        assert predict(job, cluster(12 * dp), layout).step_s == pytest.approx(measured, rel=0.08)


def test_a_squeezed_exchange_is_shorter() -> None:
    job = replace(GPT3, model=find_model("gpt2"), seq=1024, global_batch=128, software=CLASSIC)
    slow = cluster(4, node_gbit=10)
    plain, squeezed = (
        predict(job, slow, Layout(dp=32, micro_batch=4, codec=c)) for c in ("none", "all|int4(block=64)")
    )
    assert squeezed.exchange_s < 0.5 * plain.exchange_s
    assert predict(job, slow, Layout(dp=32, micro_batch=4, every=8)).exchange_s < 0.2 * plain.exchange_s
