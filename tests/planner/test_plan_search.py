"""The search finds exactly what brute force finds; what cannot run is refused with the nearest thing that can."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from trainingkit.core.errors import ConfigError
from trainingkit.planner import plan
from trainingkit.planner.cluster import cluster_of
from trainingkit.planner.explain import illegal
from trainingkit.planner.layout import Job
from trainingkit.planner.memory import peak_memory
from trainingkit.planner.models import find_model
from trainingkit.planner.search import Space, layouts, search
from trainingkit.planner.search.search import bound_s, timed_plan

SPACES = [
    ("gpt2-xl", "a100-40g", 2, 4, 24, Space()),
    ("llama3-8b", "h100", 1, 8, 16, Space(schedules=("1f1b", "interleaved"))),
    ("mixtral-8x7b", "h100", 2, 8, 16, Space(shards=(0, 1), recomputes=("full",))),
    ("resnet-50", "v100-16g", 1, 4, 256, Space()),
    ("gpt2", "rtx3090", 2, 2, 16, Space(codecs=("none", "all|int4(block=64)"), everys=(1, 4))),
]


@pytest.mark.parametrize(("model", "gpu", "nodes", "per_node", "batch", "space"), SPACES)
def test_search_is_brute_force(model: str, gpu: str, nodes: int, per_node: int, batch: int, space: Space) -> None:
    cluster = cluster_of({"gpu": gpu, "nodes": nodes, "per_node": per_node})
    shape = find_model(model)
    job = Job(shape, getattr(shape, "seq", 1), batch)
    every = list(layouts(job, cluster, space, Counter()))
    fitting = [one for one in every if peak_memory(job, cluster, one).high <= cluster.gpu.memory_bytes]
    plans = [timed_plan(job, cluster, one) for one in fitting]
    wanted = sorted(plans, key=lambda p: (p.merit_s, p.layout))[:7]
    found = search(job, cluster, space, top=7)
    assert [p.layout for p in found.plans] == [p.layout for p in wanted]
    assert found.considered == len(every) == len(set(every))
    assert all(bound_s(job, cluster, p.layout) <= p.merit_s * (1 + 1e-9) for p in plans)


def test_every_layout_is_legal_and_uses_every_device() -> None:
    cluster = cluster_of({"gpu": "h100", "nodes": 2, "per_node": 8})
    job = Job(find_model("llama3-8b"), 8192, 48)
    for layout in layouts(job, cluster, Space(), Counter()):
        assert layout.devices == 16
        assert illegal(timed_plan(job, cluster, layout), layout) == ""


def test_no_plan_is_above_the_achievable_rate() -> None:
    for model in ("llama3-8b", "gpt3-175b", "bert-large", "vit-large"):
        for found in plan(model, "h100:64x8", top=3).plans:
            assert found.of_achievable < 1.0


def test_the_whole_space_of_gpt3_on_1024_takes_seconds() -> None:
    begun = time.process_time()
    found = plan("gpt3-175b", "a100-80g:128x8", global_batch=1536).found
    assert time.process_time() - begun < 5.0
    assert found.considered > 10_000
    assert found.timed < found.considered / 50


def test_a_model_that_fits_one_device() -> None:
    answer = plan("gpt2", "a100-80g:1x8")
    assert "This model fits one device: use data parallel only." in answer.reasons()
    assert (answer.best.layout.tp, answer.best.layout.pp) == (1, 1)


def test_what_is_fixed_stays() -> None:
    found = plan("llama3-8b", "h100:2x8", fix="tp=4, recompute=full, sequence_parallel=true")
    assert {(p.layout.tp, p.layout.recompute, p.layout.sequence_parallel) for p in found.plans} == {(4, "full", True)}


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ("tp=3", "The nearest that works: --fix tp=2"),
        ("tpp=4", "Did you mean tp=...?"),
        ("tp", "name=value"),
        ("recompute=ful", "--fix recompute=full"),
        ("tp=8,pp=2,dp=2", "possible, but not together"),
    ],
)
def test_impossible_degrees_name_the_nearest(fix: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan("llama3-8b", "h100:2x8", fix=fix)
    assert words in str(caught.value)


def test_neighbours_lose_or_say_why_they_cannot_run() -> None:
    answer = plan("llama3-70b", "h100:8x8")
    found = answer.neighbours()
    assert len(found) >= 6
    for neighbour in found:
        assert neighbour.why
        assert neighbour.lost is None or neighbour.lost > -0.05


def test_too_little_memory_names_the_leanest() -> None:
    with pytest.raises(ConfigError) as caught:
        plan("llama3-405b", "h100:1x2")
    text = str(caught.value)
    assert "No plan fits into the memory of these devices." in text
    assert "the leanest of" in text
    assert "nodes, on which a plan fits; or a device with more memory" in text


def test_an_impossible_batch_names_one_that_works() -> None:
    with pytest.raises(ConfigError) as caught:
        plan("resnet-50", "a100-80g:1x8", global_batch=12)
    assert "--global-batch 16" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"precision": "bf61"}, "Did you mean 'bf16'?"),
        ({"precision": "fp8"}, "has no 8-bit matrix units"),
        ({"global_batch": 0}, "--global-batch"),
        ({"objective": "cost"}, "needs a price"),
    ],
)
def test_bad_wishes_are_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan("gpt2", "a100-80g:1x8", **more)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_the_cheapest_uses_fewer_hosts() -> None:
    cluster = {"gpu": "h100", "nodes": 16, "per_node": 8, "price_per_gpu_hour": 2.5}
    fast, cheap = (plan("llama3-8b", cluster, objective=o) for o in ("time", "cost"))
    assert cheap.cluster.nodes < 16
    assert (cheap.best.price_to(1e12) or 0) <= (fast.best.price_to(1e12) or 0)
