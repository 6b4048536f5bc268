"""Which ranks are near each other? Islands from measured costs of pairs: single linkage, cut at the dearest gap. Pure.

The cheapest links that connect all ranks (a minimum spanning tree, Kruskal 1956) are sorted by cost. From the
last step of `RATIO` times and more from one to the next on, all lie between islands; inside, links may differ as they
like. O(N^2 log N).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainingkit.core.errors import ConfigError

RATIO = 4.0
"""Between islands everything takes at least this much longer than inside."""
FEWEST_RANKS = 4
"""Two islands of two are the smallest that are worth it."""
SAMPLE_BYTES = 256 << 10
"""A message of this size is what a pair's cost is about: latency and bandwidth in one figure."""


@dataclass(frozen=True)
class Islands:
    """Ranks by island, canonical: ranks ascend within an island, islands by their first rank.

    Attributes:
        groups: every rank from 0 on is in one of them.
    """

    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(groups: Iterable[Iterable[int]], *, field: str = "islands") -> Islands:
        """Islands in canonical order.

        Raises:
            ConfigError: a rank is missing, or named twice.
        """
        made = tuple(sorted(tuple(sorted(group)) for group in groups))
        ranks = sorted(rank for group in made for rank in group)
        if not made or () in made or ranks != list(range(len(ranks))):
            raise ConfigError(
                "The islands do not share out the ranks.",
                field=field,
                found=str([list(group) for group in made]),
                expected="every rank from 0 on in one island, for example [[0, 1], [2, 3]]",
                next_step="Name each rank once.",
            )
        return Islands(made)

    @staticmethod
    def flat(ranks: int) -> Islands:
        """All ranks in one."""
        return Islands((tuple(range(ranks)),))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(len(group) for group in self.groups)

    @property
    def size(self) -> int | None:
        """Ranks of each island; None where they differ."""
        sizes = {len(group) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    def place(self, rank: int) -> tuple[int, int]:
        """(island, place within it) of a rank."""
        for island, group in enumerate(self.groups):
            if rank in group:
                return island, group.index(rank)
        raise AssertionError(f"rank {rank} is on no island")

    def across(self) -> tuple[tuple[int, ...], ...]:
        """For each place, the ranks that have it, one of each island. For islands of one size."""
        return tuple(zip(*self.groups, strict=True))

    def __str__(self) -> str:
        return " + ".join(",".join(map(str, group)) for group in self.groups)


@dataclass(frozen=True)
class Found:
    """Islands, and why these.

    Args:
        reason: one sentence a person can check.
    """

    islands: Islands
    reason: str


def cost_s(latency_s: float, bandwidth_bps: float) -> float:
    """Seconds that `SAMPLE_BYTES` take over a link."""
    return latency_s + 8 * SAMPLE_BYTES / max(bandwidth_bps, 1.0)


def find_islands(costs_s: Sequence[Sequence[float]], *, ratio: float = RATIO) -> Found:
    """Islands by what the pairs cost.

    Args:
        costs_s: [ranks][ranks], positive; of the two directions of a pair the dearer one counts. The diagonal does not.
        ratio: how much dearer it must be between islands.

    Returns:
        One island of all ranks where there is no such gap.
    """
    ranks = len(costs_s)
    tree = _spanning_tree([[max(costs_s[a][b], costs_s[b][a]) for b in range(ranks)] for a in range(ranks)])
    steps = [tree[i + 1][0] / tree[i][0] for i in range(len(tree) - 1)]
    cut = max((number + 1 for number, step in enumerate(steps) if step >= ratio), default=0)
    if not cut:
        return Found(Islands.flat(ranks), _one_island(tree))
    islands = Islands.of(_joined(ranks, [(a, b) for _, a, b in tree[:cut]]))
    inside, between = tree[cut - 1][0], tree[cut][0]
    return Found(
        islands,
        f"between the islands {islands} {SAMPLE_BYTES >> 10} kB take {between * 1e3:.3g} ms, inside at most "
        f"{inside * 1e3:.3g} ms: {between / inside:.3g} times as long",
    )


def _one_island(tree: Sequence[tuple[float, int, int]]) -> str:
    if not tree:
        return "there is one rank only"
    low, high = tree[0][0], tree[-1][0]
    return (
        f"{SAMPLE_BYTES >> 10} kB take {low * 1e3:.3g} to {high * 1e3:.3g} ms between nearest ranks, and no step "
        f"from one to the next is {RATIO:g} times"
    )


def _spanning_tree(costs: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    """(cost, a, b) of the ranks - 1 links of the minimum spanning tree, cheapest first; ties by rank."""
    ranks = len(costs)
    home = list(range(ranks))
    tree = []
    links = [(costs[one][other], one, other) for one in range(ranks) for other in range(one + 1, ranks)]
    for cost, a, b in sorted(links):
        if home[a] != home[b]:
            tree.append((cost, a, b))
            old, new = home[b], home[a]
            home = [new if each == old else each for each in home]
    return tree


def _joined(ranks: int, links: Iterable[tuple[int, int]]) -> list[list[int]]:
    home = list(range(ranks))
    for a, b in links:
        old, new = home[b], home[a]
        home = [new if each == old else each for each in home]
    return [[rank for rank in range(ranks) if home[rank] == island] for island in sorted(set(home))]
