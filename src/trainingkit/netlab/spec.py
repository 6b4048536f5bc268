"""What a lab shall look like: how many hosts, how fast each link, which islands, how much delay and loss."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainingkit.core.errors import ConfigError
from trainingkit.core.units import parse_seconds
from trainingkit.netlab.rates import UNSHAPED, parse_rate

MOST_HOSTS = 64
LONGEST_DELAY_S = 10.0


@dataclass(frozen=True)
class LabSpec:
    """One lab. Rates are texts as `parse_rate` reads them; they hold for both directions of a link.

    Args:
        hosts: number of hosts.
        link: rate of every host's link.
        links: instead of `link`, one rate per host.
        islands: sizes of groups of hosts behind a shared uplink each, for example (2, 2); empty: one flat switch.
        between: rate of each island's uplink.
        delay_s: one-way seconds from any host to any other on the same switch; the round trip takes twice that.
        between_delay_s: one-way seconds that are added between hosts of different islands.
        loss: share of the frames of each host that are lost on their way out, 0 to 1; half the round trip's loss.
        seed: which frames are lost, where our own relay loses them.

    Raises:
        ConfigError: a value cannot be used, with the field's name.
    """

    hosts: int = 2
    link: str = UNSHAPED
    links: tuple[str, ...] = ()
    islands: tuple[int, ...] = ()
    between: str = UNSHAPED
    delay_s: float = 0.0
    between_delay_s: float = 0.0
    loss: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _in_range("hosts", self.hosts, 1, MOST_HOSTS)
        _in_range("delay_s", self.delay_s, 0, LONGEST_DELAY_S)
        _in_range("between_delay_s", self.between_delay_s, 0, LONGEST_DELAY_S)
        _in_range("loss", self.loss, 0, 0.99)
        parse_rate(self.link, field="link")
        parse_rate(self.between, field="between")
        self._check_links()
        self._check_islands()

    @property
    def link_bps(self) -> tuple[int | None, ...]:
        """Bits per second of each host's link; None where it is not shaped."""
        texts = self.links or (self.link,) * self.hosts
        return tuple(parse_rate(text, field=f"links[{host}]") for host, text in enumerate(texts))

    @property
    def between_bps(self) -> int | None:
        """Bits per second of each island's uplink; None where it is not shaped."""
        return parse_rate(self.between, field="between")

    @property
    def island_of(self) -> tuple[int, ...]:
        """The island of each host; all zero on one flat switch."""
        sizes = self.islands or (self.hosts,)
        return tuple(island for island, size in enumerate(sizes) for _ in range(size))

    def _check_links(self) -> None:
        if self.links and len(self.links) != self.hosts:
            raise ConfigError(
                "There must be one rate for each host.",
                field="links",
                found=f"{len(self.links)} rates for {self.hosts} hosts",
                expected=f"{self.hosts} rates, separated by commas",
                next_step="Give one for each, or leave out the number of hosts.",
            )
        if self.links and self.link != UNSHAPED:
            raise ConfigError(
                "`link` and `links` exclude each other.",
                field="link",
                found=repr(self.link),
                expected="one of the two",
                next_step="Leave one out.",
            )
        _ = self.link_bps

    def _check_islands(self) -> None:
        if self.islands and (sum(self.islands) != self.hosts or min(self.islands) < 1 or len(self.islands) < 2):
            raise ConfigError(
                "The islands must share out the hosts.",
                field="islands",
                found="+".join(map(str, self.islands)),
                expected=f"two or more sizes that add up to {self.hosts} hosts, for example 2+2 for 4",
                next_step="Change the sizes, or leave out the number of hosts.",
            )
        if not self.islands and (self.between != UNSHAPED or self.between_delay_s):
            raise ConfigError(
                "There is nothing between islands when there are no islands.",
                field="between" if self.between != UNSHAPED else "between_delay_s",
                found=repr(self.between) if self.between != UNSHAPED else str(self.between_delay_s),
                expected="`islands` beside it, for example 2+2",
                next_step="Give the islands' sizes, or leave this out.",
            )


def spec_from_texts(
    *,
    hosts: int | None = None,
    link: str | None = None,
    links: str | None = None,
    islands: str | None = None,
    between: str | None = None,
    delay: str | None = None,
    between_delay: str | None = None,
    loss: str | None = None,
) -> LabSpec:
    """A spec from what a person typed; the number of hosts follows from `links` or `islands` where it is not given.

    Raises:
        ConfigError: one of the texts cannot be read, or they contradict each other.
    """
    rates = tuple(part.strip() for part in links.split(",")) if links else ()
    sizes = parse_sizes(islands, hosts=hosts) if islands else ()
    return LabSpec(
        hosts=hosts if hosts is not None else len(rates) or sum(sizes) or 2,
        link=link or UNSHAPED,
        links=rates,
        islands=sizes,
        between=between or UNSHAPED,
        delay_s=parse_seconds(delay, field="--delay") if delay else 0.0,
        between_delay_s=parse_seconds(between_delay, field="--between-delay") if between_delay else 0.0,
        loss=parse_share(loss, field="--loss") if loss else 0.0,
    )


def spec_from_json(values: Mapping[str, Any]) -> LabSpec:
    """The spec that `dataclasses.asdict` and JSON made `values` from."""
    tuples: dict[str, Any] = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return LabSpec(**{**values, **tuples})


def parse_share(text: str, *, field: str) -> float:
    """'1%' or '0.01' -> 0.01. Raises ConfigError."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    if match is None:
        raise ConfigError(
            "This is not a share.",
            field=field,
            found=repr(text),
            expected="for example '1%' or '0.01'",
            next_step="Write a number, with % behind it for hundredths.",
        )
    return float(match[1]) / (100 if match[2] else 1)


def parse_sizes(text: str, *, hosts: int | None = None) -> tuple[int, ...]:
    """'2+2' -> (2, 2); '2' is the same for four hosts, or where nothing is said of hosts. Raises ConfigError.

    Args:
        hosts: what a number alone shares out; by default two for each island.
    """
    parts = [part.strip() for part in text.split("+")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(
            "These are no islands.",
            field="islands",
            found=repr(text),
            expected="sizes such as 2+2, or how many islands",
            next_step="Write whole numbers with '+' between them.",
        )
    sizes = tuple(int(part) for part in parts)
    if len(sizes) == 1 and sizes[0] > 1:
        return ((2 if hosts is None else hosts // sizes[0]),) * sizes[0]
    return sizes


def _in_range(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(
            "A lab cannot be made with this.",
            field=field,
            found=value,
            expected=f"{low} to {high}",
            next_step=f"Choose a value in this range for {field}.",
        )
