"""Who takes part: names as `bench.naming` reads them, what each stands for, and which shaped bench times it.

torchft's LocalSGD and DiLoCo need its manager and a lighthouse process beside the ranks; their arithmetic and their
traffic (fp32 differences in an all-reduce every H steps, for which all ranks wait) are those of `every(10)|none` here.
"""

from __future__ import annotations

from dataclasses import dataclass

BASELINE = "plain"
BF16 = "bf16"
LIMIT = "none"
MUON = "+muon"
DENSE_OF = {LIMIT: BASELINE, LIMIT + MUON: BASELINE + MUON}
"""Who exchanges nothing, and the contender with the same optimizer whose losses it would have."""
LOCAL_SGD = "every(10)|none"
DILOCO = "every(10, outer_lr=0.7, outer_momentum=0.9, nesterov=true)|none"
EIGHT = "every(8)|all|int2"
BLOCKS = "+muon(block_rows=64, ns_steps=4)"
"""Muon with a ninth of the flops: blocks of as many rows as a head has, and four iterations."""
WINNER = EIGHT + BLOCKS
SMALLER = WINNER + "+batch(4)"


@dataclass(frozen=True)
class Entry:
    """A contender.

    Args:
        name: what is trained.
        label: the table's word.
        timed_as: the contender whose steps on the wire are the same, where it is another one.
    """

    name: str
    label: str
    timed_as: str = ""

    @property
    def timing(self) -> str:
        """The name that is timed."""
        return self.timed_as or self.name

    @property
    def trained_as(self) -> str:
        """The name whose losses it has."""
        return DENSE_OF.get(self.name, self.name)


TODAY = (
    Entry(BASELINE, "plain DDP, fp32 wire"),
    Entry(BF16, "DDP, bf16 wire"),
    Entry("powersgd-2", "PowerSGD rank 2, one bucket"),
    Entry("powersgd-4", "PowerSGD rank 4, one bucket"),
    Entry(LOCAL_SGD, "LocalSGD every 10 (ours, in place of torchft's)"),
    Entry(DILOCO, "DiLoCo every 10 (ours, in place of torchft's)", timed_as=LOCAL_SGD),
)
"""What people can run without this package, but for the two that are ours in another's place."""

OURS = (
    Entry("all|int4", "ours, int4 every step"),
    Entry(EIGHT, "ours, int2 every 8"),
    Entry("plain+muon", "plain DDP with Muon"),
    Entry("all|int4+muon", "ours, int4 every step, Muon"),
    Entry(EIGHT + MUON, "ours, int2 every 8, Muon"),
    Entry(WINNER, "ours, int2 every 8, Muon in blocks"),
)
"""What the package adds; plain DDP with Muon shows what the optimizer alone does."""

LIMITS = (
    Entry(LIMIT, "no communication, AdamW", timed_as=LIMIT),
    Entry(LIMIT + MUON, "no communication, Muon", timed_as=LIMIT + MUON),
)
"""Steps of the one, losses of the dense contender with the same optimizer: what no wire can beat."""

IDEAS = (Entry(SMALLER, "the same with half the batch"),)
"""Tried on top of the winner."""

CATALOGUE = (*TODAY, *OURS, *IDEAS, *LIMITS)


def ablation_of(winner: str) -> tuple[Entry, ...]:
    """The judged contender with one thing put back; none for one that is not every(H), a codec and an optimizer.

    >>> [entry.name for entry in ablation_of("every(8)|all|int2+muon")]
    ['every(8)|none+muon', 'all|int2+muon', 'every(8)|all|int2', 'every(8)|all|int2+muon+fp32']
    """
    way, *others = winner.split("+")
    every, _, codec = way.partition("|")
    with_others = "".join("+" + part for part in others)
    if not every.startswith("every(") or not others:
        return ()
    return (
        Entry(f"{every}|none{with_others}", f"wire: fp32 in place of {codec}"),
        Entry(codec + with_others, f"H: every step in place of {every}"),
        Entry(way, f"optimizer: AdamW in place of {others[0]}"),
        Entry(winner + "+fp32", "precision: computing in fp32 in place of bf16"),
    )


def everybody(winner: str = WINNER) -> list[Entry]:
    """All whose curve is wanted, each once, in the order in which they are worth running."""
    judged, ablation = entry_of(winner), ablation_of(winner)
    first = (TODAY[0], judged, TODAY[1], *ablation, *TODAY[2:], *OURS, *IDEAS)
    found: dict[str, Entry] = {}
    for entry in first:
        found.setdefault(entry.name, entry)
    return list(found.values())


def entry_of(name: str) -> Entry:
    """The catalogue's entry, or one with the name alone."""
    return next((entry for entry in CATALOGUE if entry.name == name), Entry(name, name))
