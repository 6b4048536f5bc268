"""Islands from costs of pairs: the right ones, the same whatever the numbering, and none where there is no gap."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks import Context, Pool
from trainingkit.cluster.island_probe import best_of, costs, measure_quickly, probe_islands, tournament
from trainingkit.cluster.islands import Islands, cost_s, find_islands
from trainingkit.cluster.probe_links import PairLink
from trainingkit.core.errors import ConfigError

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 2)


def costs_of(sizes: list[int], near: float, far: float, noise: float, seed: int) -> tuple[list[list[float]], Islands]:
    """Costs with noise of at most a factor, over ranks in a shuffled order; and the islands they were made from."""
    chance = random.Random(seed)
    ranks = list(range(sum(sizes)))
    chance.shuffle(ranks)
    starts = [0, *itertools.accumulate(sizes)]
    islands = Islands.of([ranks[start:stop] for start, stop in itertools.pairwise(starts)])
    home = {rank: number for number, group in enumerate(islands.groups) for rank in group}
    table = [
        [(near if home[a] == home[b] else far) * chance.uniform(1.0, noise) for b in range(len(ranks))]
        for a in range(len(ranks))
    ]
    return table, islands


@settings(deadline=None, max_examples=150)
@given(sizes=SIZES, ratio=st.floats(9.0, 1000.0), seed=st.integers(0, 1000))
def test_islands_are_found_behind_noise(sizes: list[int], ratio: float, seed: int) -> None:
    table, islands = costs_of(sizes, 1e-3, ratio * 1e-3, 1.9, seed)
    alike = len(sizes) == 1 or max(sizes) == 1
    assert find_islands(table).islands == (Islands.flat(sum(sizes)) if alike else islands)


@settings(deadline=None, max_examples=100)
@given(sizes=SIZES, seed=st.integers(0, 1000))
def test_no_gap_no_islands(sizes: list[int], seed: int) -> None:
    table, _ = costs_of(sizes, 1e-3, 2e-3, 1.9, seed)
    found = find_islands(table)
    assert found.islands == Islands.flat(sum(sizes))
    assert "no step from one to the next is 4 times" in found.reason or sum(sizes) == 1


@settings(deadline=None, max_examples=100)
@given(n=st.integers(2, 8), seed=st.integers(0, 10_000))
def test_the_numbering_of_ranks_does_not_matter(n: int, seed: int) -> None:
    chance = random.Random(seed)
    table = [[10.0 ** chance.uniform(-4, 0) for _ in range(n)] for _ in range(n)]
    new = list(range(n))
    chance.shuffle(new)
    renamed = [[table[new[a]][new[b]] for b in range(n)] for a in range(n)]
    found = find_islands(renamed).islands
    assert Islands.of([[new[rank] for rank in group] for group in found.groups]) == find_islands(table).islands
    turned = [list(column) for column in zip(*table, strict=True)]
    assert find_islands(turned) == find_islands(table), "the dearer direction counts, whichever it is"


def test_the_reason_has_the_figures() -> None:
    table = [[0, 1e-3, 0.02, 0.02], [1e-3, 0, 0.02, 0.02], [0.02, 0.02, 0, 2e-3], [0.02, 0.02, 2e-3, 0]]
    found = find_islands(table)
    assert found.islands.groups == ((0, 1), (2, 3))
    expected = "between the islands 0,1 + 2,3 256 kB take 20 ms, inside at most 2 ms: 10 times as long"
    assert found.reason == expected


def test_the_dearest_gap_counts_not_a_quick_pair_inside() -> None:
    costs_s = [[0.0, 5e-4, 0.2, 0.2], [5e-4, 0.0, 0.2, 0.2], [0.2, 0.2, 0.0, 0.016], [0.2, 0.2, 0.016, 0.0]]
    assert find_islands(costs_s).islands.groups == ((0, 1), (2, 3))


def test_latency_counts_as_well_as_bandwidth() -> None:
    assert cost_s(0.0, 8 * 262_144) == 1.0
    assert cost_s(0.03, 1e9) > 4 * cost_s(0.0002, 1e9)


def test_islands_are_canonical_and_know_their_places() -> None:
    islands = Islands.of([[5, 2, 4], [3, 0, 1]])
    assert islands.groups == ((0, 1, 3), (2, 4, 5))
    assert islands.ranks == 6 and islands.size == 3
    assert islands.place(4) == (1, 1)
    assert islands.across() == ((0, 2), (1, 4), (3, 5))
    assert Islands.of([[0, 1], [2]]).size is None


@pytest.mark.parametrize("groups", [[], [[0], []], [[0, 1], [1, 2]], [[1, 2]], [[0, 2]]])
def test_islands_that_do_not_share_out_the_ranks_are_refused(groups: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="do not share out the ranks") as caught:
        Islands.of(groups, field="sync.islands")
    assert caught.value.field == "sync.islands"
    assert "for example [[0, 1], [2, 3]]" in str(caught.value)


@given(st.integers(1, 20))
def test_a_tournament_has_every_pair_once(ranks: int) -> None:
    turns = tournament(ranks)
    pairs = [pair for turn in turns for pair in turn]
    assert sorted(pairs) == list(itertools.combinations(range(ranks), 2))
    assert len(turns) <= ranks
    for turn in turns:
        flat = [rank for pair in turn for rank in pair]
        assert len(flat) == len(set(flat))


def probed(context: Context) -> tuple[str, str, list[list[float]], bool]:
    found = probe_islands(context.group)
    links = measure_quickly(context.group, budget_s=60.0)
    assert links is not None
    table = costs(links, context.world_size)
    return str(found.islands), found.reason, table, measure_quickly(context.group, budget_s=-1.0) is None


def test_ranks_agree_on_what_they_measure(pool: Pool) -> None:
    ended = pool.run(probed, 4)
    assert all(one == ended[0] for one in ended)
    islands, reason, table, no_time = ended[0]
    assert (islands, reason) == ("0,1,2,3", "all ranks run on one host")
    assert all(0.0 < table[a][b] < 60.0 for a in range(4) for b in range(4) if a != b)
    assert no_time


def test_of_several_measurements_the_best_counts() -> None:
    seen = [PairLink(0, 1, 2e-3, 5e6), PairLink(1, 0, 1e-3, 1e6), PairLink(0, 1, 1e-3, 4e6)]
    assert best_of(seen) == [PairLink(0, 1, 1e-3, 5e6), PairLink(1, 0, 1e-3, 1e6)]
