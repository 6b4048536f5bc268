"""The exchange bench: what its figures become, what simulated ranks send, and a small run with real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainingkit.bench.exchange.footprint import Footprint
from trainingkit.bench.exchange.many import simulated_footprint
from trainingkit.bench.exchange.run import Wanted, run
from trainingkit.bench.exchange.spec import FLAT, HIERARCHICAL, REAL, SIMULATED, TWIN, Task
from trainingkit.bench.exchange.summary import Figures, flatness_of, gains, of_ring, summarise
from trainingkit.bench.paired import Turns
from trainingkit.bench.result import read, write
from trainingkit.codec.size import message_bytes
from trainingkit.core.errors import ConfigError
from trainingkit.exchange.header import HEADER_BYTES
from trainingkit.report.benchpage import render_bench

TASK = Task(how=SIMULATED, ranks=4, elements=100_000, bucket_elements=40_000)


def turns(flat_s: float, hierarchical_s: float, rounds: int = 8) -> dict[str, Any]:
    """As a worker's JSON: keys are texts."""
    wobble = [1.0 + 0.001 * (number % 3) for number in range(rounds)]
    seconds = {FLAT: flat_s, TWIN: flat_s, HIERARCHICAL: hierarchical_s}
    return {
        "turns": {
            "seconds": {n: {str(i): s * w for i, w in enumerate(wobble)} for n, s in seconds.items()},
            "failed": {},
            "rounds": rounds,
        },
        "sent_bytes": {FLAT: 3_000_000, TWIN: 3_000_000, HIERARCHICAL: 9_000_000},
        "found": [[0, 1], [2, 3]],
        "reason": "between the islands 0,1 + 2,3 256 kB take 100 ms",
        "probe_s": 0.5,
    }


def footprints(many_ram: int) -> dict[tuple[str, int], list[Footprint]]:
    few, many = Footprint(150_000, 1_000_000), Footprint(197_000, many_ram)
    return {(SIMULATED, 4): [few] * 5, (SIMULATED, 64): [many] * 5, (REAL, 4): [few]}


@pytest.mark.parametrize(("many_ram", "hierarchical_s", "hold"), [(1_000_000, 0.5, True), (1_200_000, 0.8, False)])
def test_checks_hold_or_not_by_their_bounds(tmp_path: Path, many_ram: int, hierarchical_s: float, hold: bool) -> None:
    figures = Figures(footprints(many_ram), turns(1.0, hierarchical_s))
    result = summarise(TASK, figures, {"codec": TASK.codec}, command="trainingkit bench exchange")
    assert [claim.name for claim in result.checks] == ["flatness", "hierarchical_vs_flat"]
    assert [claim.holds for claim in result.checks] == [hold, hold]
    assert any("The flat exchange against itself shows 1.000 (1.000 to 1.000)" in note for note in result.notes)
    assert {row.get("how", row.get("exchange")) for row in result.rows} == {REAL, SIMULATED, FLAT, TWIN, HIERARCHICAL}
    assert any("islands found: [[0, 1], [2, 3]]" in note for note in result.notes)
    write(result, tmp_path / "exchange.json")
    assert read(tmp_path / "exchange.json") == result
    assert "hierarchical vs flat" in render_bench(result)


def test_without_a_lab_nothing_is_said_of_islands() -> None:
    result = summarise(TASK, Figures(footprints(900_000), None), {}, command="")
    assert [claim.name for claim in result.checks] == ["flatness"]


def test_of_the_flat_exchange_s_two_turns_the_shorter_counts() -> None:
    seconds = {FLAT: {0: 3.0, 1: 2.0}, TWIN: {0: 2.0, 1: 4.0}, HIERARCHICAL: {0: 1.0, 1: 0.5}}
    assert gains(Turns(seconds)) == [2.0, 4.0]


def test_flatness_is_the_worse_of_ram_and_bytes_over_a_ring() -> None:
    few = Footprint(round(1.5 * 4 * TASK.elements), 1000)
    ring = Footprint(round(2 * 63 / 64 * 4 * TASK.elements), 1000)
    assert of_ring(TASK, 4, few) == pytest.approx(1.0) == of_ring(TASK, 64, ring)
    assert flatness_of(TASK, few, ring) == pytest.approx(1.0)
    assert flatness_of(TASK, few, Footprint(ring.sent_bytes, 1300)) == pytest.approx(1.3)
    assert flatness_of(TASK, few, Footprint(2 * ring.sent_bytes, 500)) == pytest.approx(2.0)


@pytest.mark.parametrize("ranks", [2, 4, 9])
def test_simulated_ranks_send_what_real_ones_would(ranks: int) -> None:
    task = TASK.model_copy(update={"ranks": ranks})
    assert task.buckets == [40_000, 40_000, 20_000]
    owners = 1 if ranks == 2 else ranks
    shards = [-(-size // (64 * owners)) * 64 for size in task.buckets]
    one = sum(HEADER_BYTES + message_bytes(task.codec, shard) for shard in shards)
    found = simulated_footprint(task)
    assert found.sent_bytes == (1 if ranks == 2 else 2) * (ranks - 1) * one


def test_real_ranks_send_as_much_as_simulated_ones() -> None:
    said: list[str] = []
    wanted = Wanted(TASK, real=(3,), simulated=(3,), repeats=0, islands=())
    result = run(wanted, command="trainingkit bench exchange", say=said.append)
    real, simulated = sorted(result.rows, key=lambda row: row["how"])
    assert (real["how"], simulated["how"]) == (REAL, SIMULATED)
    assert real["sent_mb"] == simulated["sent_mb"] > 0
    assert simulated["ram_bytes_per_value"] > 0.9 * 8, "residuals with their twins are 8 bytes a value"
    assert said == ["3 real ranks", "3 simulated ranks"]


@pytest.mark.parametrize("islands", [(2, 3), (4,), (1, 1)])
def test_islands_that_cannot_be_compared_are_refused(islands: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="nothing to compare") as caught:
        run(Wanted(TASK, islands=islands), command="")
    assert caught.value.field == "--islands"
    assert "for example 2+2" in str(caught.value)
