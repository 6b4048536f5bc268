"""Which exchange, over which islands, and its lanes: process groups of their own, made by all ranks alike."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist

from trainingkit.cluster.island_probe import probe_islands
from trainingkit.cluster.islands import FEWEST_RANKS, Found, Islands
from trainingkit.core.errors import ConfigError
from trainingkit.core.logging import LOG
from trainingkit.exchange import EXCHANGES, pick_exchange
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.meter import WireMeter
from trainingkit.exchange.registry import HIERARCHICAL
from trainingkit.sync.section import AUTO_ISLANDS, NO_ISLANDS, IslandChoice

FIELD = "sync.islands"


@dataclass(frozen=True)
class Laid:
    """An exchange, ready to be used.

    Args:
        exchange: name of the registry entry.
        islands: one of all ranks for a flat exchange.
        reason: why these; one sentence a person can check.
    """

    exchange: str
    lanes: list[Lane]
    islands: Islands
    reason: str

    def describe(self) -> dict[str, object]:
        """JSON-able facts, for the page and the decisions."""
        return {"islands": [list(group) for group in self.islands.groups], "islands_reason": self.reason}


def lay_lanes(group: dist.ProcessGroup, choice: IslandChoice, *, timeout_s: float, meter: WireMeter | None) -> Laid:
    """Find the islands, pick the exchange, make its lanes. All ranks of the group call it.

    Args:
        group: the ranks; a group's own numbering counts, from 0 on.
        choice: "auto", "off" or islands.
        timeout_s: deadline of one collective.
        meter: of the lanes on which messages travel; what stays inside an island is not told to it.

    Raises:
        ConfigError: the islands are not of these ranks.
    """
    found = choose_islands(group, choice, timeout_s=timeout_s)
    exchange = pick_exchange(found.islands.ranks, found.islands)
    if len(found.islands.groups) > 1 and exchange != HIERARCHICAL:
        reason = f"the islands {found.islands} are of different sizes or of one rank each, so all ranks exchange alike"
        found = Found(Islands.flat(found.islands.ranks), f"{reason} ({found.reason})")
    if dist.get_rank(group) == 0 and exchange == HIERARCHICAL:
        LOG.info("the exchange has two levels: fp32 inside %s, squeezed between; %s", found.islands, found.reason)
    elif dist.get_rank(group) == 0:
        LOG.info("all ranks exchange alike: %s", found.reason)
    groups = EXCHANGES.get(exchange).groups(found.islands)
    across = range(1, len(groups) - 1) if exchange == HIERARCHICAL else range(len(groups))
    lanes = [
        Lane(_own_group(group, grouping, timeout_s), meter if number in across else None)
        for number, grouping in enumerate(groups)
    ]
    return Laid(exchange, lanes, found.islands, found.reason)


def choose_islands(group: dist.ProcessGroup, choice: IslandChoice, *, timeout_s: float) -> Found:
    """The islands that were asked for, or are found. Collective.

    Raises:
        ConfigError: the islands are not of these ranks.
    """
    ranks = dist.get_world_size(group)
    if choice == NO_ISLANDS:
        return Found(Islands.flat(ranks), f'{FIELD} = "{NO_ISLANDS}"')
    if choice != AUTO_ISLANDS:
        return Found(_explicit(choice, ranks), f"{FIELD} says so")
    if ranks < FEWEST_RANKS:
        return probe_islands(group)
    measuring = new_group(dist.get_process_group_ranks(group), timeout_s)
    try:
        return probe_islands(measuring)
    finally:
        dist.destroy_process_group(measuring)


def new_group(ranks: Sequence[int], timeout_s: float) -> dist.ProcessGroup:
    """A Gloo group over ranks of the job. Where they are not all of it, the others need not call."""
    made = dist.new_group(
        list(ranks),
        backend="gloo",
        timeout=datetime.timedelta(seconds=timeout_s),
        use_local_synchronization=len(ranks) < dist.get_world_size(),
    )
    assert isinstance(made, dist.ProcessGroup)
    return made


def _own_group(group: dist.ProcessGroup, grouping: Sequence[Sequence[int]], timeout_s: float) -> dist.ProcessGroup:
    """Of a lane's groups the one that this rank is in."""
    whole = dist.get_process_group_ranks(group)
    own = next(ranks for ranks in grouping if dist.get_rank(group) in ranks)
    return new_group([whole[rank] for rank in own], timeout_s)


def _explicit(choice: Sequence[Sequence[int]] | str, ranks: int) -> Islands:
    assert not isinstance(choice, str)
    islands = Islands.of(choice, field=FIELD)
    if islands.ranks != ranks:
        raise ConfigError(
            "The islands are not those of this job.",
            field=FIELD,
            found=f"{islands.ranks} ranks in {[list(group) for group in islands.groups]}",
            expected=f"the ranks 0 to {ranks - 1}",
            next_step=f'Name each of them once, or set {FIELD} = "auto".',
        )
    return islands
