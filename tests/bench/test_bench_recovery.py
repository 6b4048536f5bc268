"""The recovery bench: what its figures become as checks, and a small run of it from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainingkit import cli
from trainingkit.bench.recovery.losses import Losses
from trainingkit.bench.recovery.run import result_of
from trainingkit.bench.recovery.spec import Block, Found, RecoverySpec
from trainingkit.bench.result import read


def found(overhead: float) -> Found:
    """Seven rounds that cost so much more, and at ten seconds twice that."""
    blocks = [Block(30.0, 40, (60.0, 60.0 * (1 + overhead)), (30.0, 30.5), 0.0, (30.0, 30.3)) for _ in range(7)]
    blocks += [Block(10.0, 13, (20.0, 20.0 * (1 + 2 * overhead)), (10.0, 10.1), 0.01, (10.0, 10.0)) for _ in range(7)]
    return Found(
        blocks, journal_bytes=51.0, wire_bytes=100.0, trained_per_s=2.0, replayed_per_s=30.0, replayed_steps=60
    )


def test_figures_become_checks() -> None:
    losses = Losses((2.0, 2.2, 2.1), (2.0, 2.3, 2.1), (30, 31, 32), ("a", "b", "c"))
    result = result_of(RecoverySpec(), found(0.01), losses, command="c")
    checks = {check.name: check for check in result.checks}
    assert checks["cpu_overhead"].value == pytest.approx(0.01) and checks["cpu_overhead"].holds
    assert checks["replay_rate"].value == 15.0 and checks["replay_rate"].holds
    assert checks["journal_vs_wire"].value == pytest.approx(0.51) and checks["journal_vs_wire"].holds
    assert checks["loss_sigmas"].value == pytest.approx(2.0)
    assert [row["cpu_overhead"] for row in result.rows[:2]] == [0.01, 0.02]
    assert [row["again"] for row in result.rows[:2]] == [0.01, 0.0]
    assert result.rows[3] == {
        "seed": 1, "loss": 2.2, "loss_after_recovery": 2.3, "killed_after": 31, "replayed": "b"
    }  # fmt: skip
    assert not result_of(RecoverySpec(), found(0.03), None, command="c").holds


def test_what_was_found_survives_as_text() -> None:
    assert Found.from_json(found(0.01).to_json()) == found(0.01)


@pytest.mark.slow
def test_a_small_run_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--scale", "tiny", "--intervals", "0.5", "--rounds", "2", "--seeds", "2", "--json", "r.json"]
    with pytest.raises(SystemExit):
        cli.main(["bench", "recovery", *small])
    result = read(tmp_path / "r.json")
    assert {check.name for check in result.checks} == {
        "cpu_overhead", "replay_rate", "journal_vs_wire", "loss_sigmas"
    }  # fmt: skip
    assert result.facts["replayed_steps"] == 60
    assert all("replayed" in row["replayed"] for row in result.rows if "seed" in row)
