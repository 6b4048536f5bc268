"""Cluster files: by hand, by the probe, in one word; and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainingkit.core.errors import ConfigError
from trainingkit.planner.asking import default_batch, find_cluster
from trainingkit.planner.cluster import cluster_of, gpu_named, load_cluster
from trainingkit.planner.models import find_model

PROBED = """
format = 1
[[hosts]]
rank = 0
name = "a"
cpu = "x"
cores = 4
threads = 4
ram_bytes = 16000000000
gemm_fp32_gflops = 100.0
gemm_bf16_gflops = 200.0
copy_gb_per_s = 8.0
[[hosts]]
rank = 1
name = "b"
cpu = "x"
cores = 4
threads = 4
ram_bytes = 8000000000
gemm_fp32_gflops = 80.0
gemm_bf16_gflops = 150.0
copy_gb_per_s = 9.0
[[links]]
source = 0
target = 1
latency_s = 0.0001
bandwidth_bps = 100000000.0
[[links]]
source = 1
target = 0
latency_s = 0.0002
bandwidth_bps = 80000000.0
"""


def test_a_file_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('gpu = "H100-80G-SXM"\nnodes = 4\nnode_gbit = 1600\n[device]\nmemory_gib = 94\n')
    cluster = load_cluster(file)
    assert (cluster.devices, cluster.far_gbit, cluster.gpu.memory_gib) == (32, 200.0, 94.0)
    assert cluster.gpu.rate("bf16") == gpu_named("h100").rate("bf16")


def test_what_the_probe_writes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(PROBED)
    cluster = load_cluster(file)
    assert (cluster.nodes, cluster.per_node) == (2, 1)
    assert cluster.gpu.rate("bf16") == pytest.approx(150e9)
    assert cluster.gpu.memory_bytes == pytest.approx(8e9)
    assert cluster.far_gbit == pytest.approx(0.09)


def test_one_word() -> None:
    cluster = find_cluster("h100:16x8")
    assert (cluster.gpu.name, cluster.nodes, cluster.per_node) == ("h100", 16, 8)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gpu": "h101"}, "Did you mean 'h100'?"),
        ({"nodes": 4}, "cluster.gpu"),
        ({"gpu": "h100", "node": 4}, "Did you mean 'nodes'?"),
        ({"gpu": "h100", "nodes": 0}, "cluster.nodes"),
        ({"gpu": "h100", "device": {"memory": 5}}, "cluster.device.memory"),
    ],
)
def test_wrong_files_are_explained(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_of(values)
    assert words in str(caught.value)


def test_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trainingkit probe"):
        load_cluster(tmp_path / "none.toml")


@pytest.mark.parametrize("devices", [1, 8, 12, 24, 1000, 1024])
def test_the_default_batch_can_be_dealt(devices: int) -> None:
    for name in ("gpt3-175b", "gpt2", "resnet-50"):
        model = find_model(name)
        assert default_batch(model, getattr(model, "seq", 1), devices) % devices == 0
