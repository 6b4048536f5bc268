"""The probe: alone, on local ranks, and in a lab with one slow link; and who is the odd one out."""

from __future__ import annotations

import json
import os
import sys
import tomllib

import pytest
import torch

from ranks.cli import run_cli
from trainingkit.cli.probe import probe
from trainingkit.cluster.odd_ones import host_rates_bps, odd_ones, outliers
from trainingkit.cluster.probe_host import HostRates, measure_host
from trainingkit.cluster.probe_links import COLLECTIVE_BYTES, PairLink, measure_collectives, measure_links
from trainingkit.core.errors import ConfigError
from trainingkit.netlab import Lab, LabSpec


def host(rank: int, **more) -> HostRates:
    rates = {"gemm_fp32_gflops": 20.0, "gemm_bf16_gflops": 80.0, "copy_gb_per_s": 8.0}
    return HostRates(
        **{"rank": rank, "name": f"h{rank}", "cpu": "x", "cores": 2, "threads": 1, "ram_bytes": 1} | rates | more
    )


def links(ranks: int, slow: dict[int, float], **more) -> list[PairLink]:
    def rate(one: int, other: int) -> float:
        return min(slow.get(one, 100e6), slow.get(other, 100e6))

    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    return [PairLink(a, b, more.get("latency_s", 1e-4), rate(a, b)) for a, b in pairs]


def test_one_slow_link_is_named_once_and_its_peers_are_not():
    found = odd_ones([host(rank) for rank in range(4)], links(4, {2: 20e6}))
    assert len(found) == 1
    assert found[0].startswith("rank 2 (h2) has a slow link: 20 Mbit/s, where the median is 100.")
    assert "Check its cable" in found[0]
    assert host_rates_bps(links(4, {2: 20e6})) == {0: 100e6, 1: 100e6, 2: 20e6, 3: 100e6}


def test_one_slow_way_between_two_good_hosts_is_named():
    every = links(4, {})
    every[0] = PairLink(0, 1, 1e-4, 10e6)
    found = odd_ones([host(rank) for rank in range(4)], every)
    assert [text[:49] for text in found] == ["The way from rank 0 (h0) to rank 1 (h1) is slow: "]


def test_far_and_slow_hosts_are_named():
    far = [
        PairLink(link.source, link.target, 0.02 if 3 in (link.source, link.target) else 1e-4, link.bandwidth_bps)
        for link in links(4, {})
    ]
    hosts = [host(0), host(1), host(2, gemm_fp32_gflops=9.0), host(3)]
    found = odd_ones(hosts, far)
    assert found[0].startswith("rank 3 (h3) is far away: 20 ms one way, where the median is 100 us.")
    assert found[1].startswith("Host h2 computes slowly: 9 GFLOP/s for fp32 products, where the median is 20.")


def test_two_hosts_and_ranks_of_one_host_give_no_odd_one():
    assert odd_ones([host(0), host(1, copy_gb_per_s=1.0)], links(2, {1: 1e6})) == []
    assert odd_ones([host(rank, name="one") for rank in range(4)], links(4, {2: 20e6})) == []
    assert outliers({0: 1.0, 1: 1.0, 2: 1.4}, lower_is_worse=False) == []


def test_a_host_has_rates():
    torch.set_num_threads(1)
    found = measure_host(0, side=128, copy_bytes=1 << 20, try_s=0.01)
    assert 0.01 < found.gemm_fp32_gflops < 1e5
    assert found.gemm_bf16_gflops > 0
    assert 0.01 < found.copy_gb_per_s < 1e4
    assert found.cores >= 1
    assert found.ram_bytes > 1 << 28


def probe_ranks(context, budget_s):
    found, left = measure_links(context.group, budget_s=budget_s)
    return found, left, measure_collectives(context.group)


def test_all_ranks_learn_the_same_of_every_pair(pool):
    results = pool.run(probe_ranks, 3, 60.0, deadline_s=60)
    found, left, collectives = results[0]
    assert all(result == results[0] for result in results)
    assert [(link.source, link.target) for link in found] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert left == []
    assert all(link.bandwidth_bps > 1e7 and 0 < link.latency_s < 1 for link in found)
    assert [each.n_bytes for each in collectives] == list(COLLECTIVE_BYTES)[: len(collectives)]
    assert len(collectives) >= 2


def test_pairs_without_time_are_listed(pool):
    found, left, _ = pool.run(probe_ranks, 3, -1.0, deadline_s=60)[0]
    assert found == []
    assert left == [(0, 1), (0, 2), (1, 2)]


def test_alone_it_measures_the_host(tmp_path):
    done = run_cli(["probe", "--output", "cluster.toml", "--json", "cluster.json"], cwd=tmp_path, deadline_s=60)
    assert done.code == 0, done.stderr
    table = tomllib.loads((tmp_path / "cluster.toml").read_text())
    assert len(table["hosts"]) == 1
    assert table["links"] == table["odd"] == []
    assert table["hosts"][0]["gemm_fp32_gflops"] > 0
    assert json.loads((tmp_path / "cluster.json").read_text()) == table
    assert "Written: cluster.toml" in done.stdout


def test_workers_of_its_own(tmp_path):
    done = run_cli(["probe", "--workers", "2", "--output", "c.toml"], cwd=tmp_path, deadline_s=100)
    assert done.code == 0, done.stderr
    table = tomllib.loads((tmp_path / "c.toml").read_text())
    assert [found["rank"] for found in table["hosts"]] == [0, 1]
    assert len(table["links"]) == 2
    assert "Mbit/s, from row to column" in done.stdout


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="The inventory cannot be written") as caught:
        probe(output=tmp_path / "no" / "folder.toml")
    assert caught.value.field == "--output"


@pytest.mark.skipif(os.geteuid() != 0, reason="a lab of this test needs root")
def test_in_a_lab_the_rates_are_true_and_the_slow_link_is_named(tmp_path):
    rates = (100e6, 100e6, 20e6)
    with Lab(LabSpec(hosts=3, links=tuple(f"{rate / 1e6:.0f}mbit" for rate in rates))) as lab:
        argv = [sys.executable, "-m", "trainingkit", "probe", "--output", str(tmp_path / "cluster.toml")]
        said = lab.launch(argv, deadline_s=100).ends[0].stdout
    table = tomllib.loads((tmp_path / "cluster.toml").read_text())
    assert len(table["links"]) == 6
    for link in table["links"]:
        stated = min(rates[link["source"]], rates[link["target"]])
        assert 0.85 * stated < link["bandwidth_bps"] < 1.02 * stated, link
    slow = [text for text in table["odd"] if "slow link" in text]
    assert len(slow) == 1
    assert slow[0].startswith("rank 2 (h2) has a slow link")
    assert slow[0] in said
