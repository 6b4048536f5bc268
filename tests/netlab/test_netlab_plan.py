"""From a spec to links and to lines for tc: pure functions."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.core.errors import ConfigError
from trainingkit.netlab import LabSpec, shaping, spec_from_texts
from trainingkit.netlab.plan import host_address, plan_links, plan_switches
from trainingkit.netlab.spec import spec_from_json

MOST_NAME_BYTES = 15


@st.composite
def specs(draw: st.DrawFn) -> LabSpec:
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=6))
    islands = tuple(sizes) if draw(st.booleans()) else ()
    hosts = sum(sizes)
    return LabSpec(
        hosts=hosts,
        links=tuple(draw(st.sampled_from(["10mbit", "1gbit", "unshaped"])) for _ in range(hosts)),
        islands=islands,
        between="20mbit" if islands else "unshaped",
        delay_s=draw(st.sampled_from([0.0, 0.02])),
        between_delay_s=0.05 if islands else 0.0,
        loss=draw(st.sampled_from([0.0, 0.01])),
    )


@settings(deadline=None, max_examples=60)
@given(specs())
def test_every_host_has_one_link_and_every_island_one_uplink(spec: LabSpec):
    links = plan_links(spec)
    assert [link.host for link in links if link.host is not None] == list(range(spec.hosts))
    assert sum(link.host is None for link in links) == len(spec.islands)
    parent = [link.far for link in links] + [link.near for link in links if link.host is None] + [*plan_switches(spec)]
    assert len(set(parent)) == len(parent)
    assert all(len(name) <= MOST_NAME_BYTES for name in parent)
    assert {link.far_switch for link in links} <= set(plan_switches(spec))
    assert len({host_address(host) for host in range(spec.hosts)}) == spec.hosts


@settings(deadline=None, max_examples=60)
@given(specs())
def test_a_spec_survives_json(spec: LabSpec):
    assert spec_from_json(json.loads(json.dumps(dataclasses.asdict(spec)))) == spec


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"hosts": 0}, "hosts", "1 to 64"),
        ({"hosts": 3, "links": ("1mbit", "1mbit")}, "links", "2 rates for 3 hosts"),
        ({"hosts": 2, "links": ("1mbit", "x")}, "links[1]", "'x'"),
        ({"hosts": 2, "link": "1mbit", "links": ("1mbit", "1mbit")}, "link", "exclude each other"),
        ({"hosts": 4, "islands": (2, 3)}, "islands", "add up to 4 hosts"),
        ({"hosts": 4, "islands": (4,)}, "islands", "two or more sizes"),
        ({"hosts": 4, "between": "1mbit"}, "between", "no islands"),
        ({"hosts": 4, "between_delay_s": 0.1}, "between_delay_s", "no islands"),
        ({"delay_s": -0.1}, "delay_s", "0 to 10"),
        ({"delay_s": float("nan")}, "delay_s", "nan"),
        ({"loss": 1.5}, "loss", "0 to 0.99"),
    ],
)
def test_specs_that_contradict_themselves_are_refused(values: dict[str, Any], field: str, words: str):
    with pytest.raises(ConfigError) as caught:
        LabSpec(**values)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_what_a_person_types():
    between, between_delay = "20mbit", "0.1 s"
    spec = spec_from_texts(
        islands="2+2", link="1gbit", between=between, delay="20ms", between_delay=between_delay, loss="1%"
    )
    assert spec == LabSpec(4, "1gbit", (), (2, 2), "20mbit", 0.02, 0.1, 0.01)
    assert spec_from_texts(links="100mbit, 20mbit,1gbit").link_bps == (100_000_000, 20_000_000, 1_000_000_000)
    assert spec_from_texts(loss="0.25").loss == 0.25
    with pytest.raises(ConfigError, match="sizes such as 2"):
        spec_from_texts(islands="2,2")
    with pytest.raises(ConfigError, match="for example '1%'"):
        spec_from_texts(loss="lots")


def test_the_bucket_is_small_beside_a_second_and_holds_ten_frames():
    for rate_bps in (1_000_000, 25_000_000, 100_000_000, 1_000_000_000, 10_000_000_000):
        burst = shaping.burst_bytes(rate_bps)
        assert burst >= 10 * shaping.FRAME_BYTES
        assert burst == pytest.approx(0.002 * rate_bps / 8, abs=500) or burst == shaping.LEAST_BURST_BYTES
        assert shaping.limit_bytes(rate_bps, 0.04, 100) >= burst + 100 * shaping.FRAME_BYTES


def test_lines_for_a_kernel_that_has_netem():
    (line,) = shaping.impair("eth0", delay_s=0.02, loss=0.01)
    assert line == "qdisc replace dev eth0 root handle 1: netem limit 100000 delay 20000us loss 1%"
    (bucket,) = shaping.shape("eth0", 25_000_000, round_trip_s=0, frames=100, parent=shaping.NETEM_PARENT)
    assert bucket.startswith("qdisc replace dev eth0 parent 1:1 handle 46: tbf rate 25000000bit burst 70000 limit ")


def test_a_bucket_with_a_smaller_burst_is_a_new_one():
    """A long segment that waits would never fit into a smaller bucket, and would block the link for good."""

    def handle(rate_bps: int) -> str:
        (line,) = shaping.shape("eth0", rate_bps, round_trip_s=0, frames=100)
        return line.split(" handle ")[1].split()[0]

    assert handle(10_000_000) == handle(100_000_000)
    handles = [handle(rate * 100_000_000) for rate in range(3, 1000)]
    assert len(set(handles)) == len(handles)
    assert {"1:", "2:", "3:"}.isdisjoint(handles)


def test_islands_are_in_order():
    sizes = [random.Random(0).randint(1, 4) for _ in range(5)]
    spec = LabSpec(hosts=sum(sizes), islands=tuple(sizes))
    assert [spec.island_of.count(island) for island in range(5)] == sizes
    assert list(spec.island_of) == sorted(spec.island_of)
