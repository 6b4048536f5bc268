"""From what workers measured to the result: ratios, rho, losses at equal steps and equal time, failures as rows."""

from __future__ import annotations

import json

import pytest

from trainingkit.bench.network.interfaces import sent_bytes
from trainingkit.bench.network.spec import SCALES, Measured, NetworkSpec
from trainingkit.bench.network.stage import Stage
from trainingkit.bench.network.summary import loss_at, summarise
from trainingkit.core.datainfo import DataInfo
from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.core.section import choose
from trainingkit.models import MODELS


def measured() -> Measured:
    none = {number: 1.0 + number / 10 for number in range(6)}
    return Measured(
        labels={"none": "no communication", "none again": "no communication", "squeezed": "ours", "plain": "plain DDP"},
        seconds={
            "none": none,
            "none again": {number: seconds * 1.001 for number, seconds in none.items()},
            "squeezed": {number: seconds / 0.96 for number, seconds in none.items()},
            "plain": {0: 4.0, 2: 4.8},
        },
        failed={"plain": "rank 1: gloo"},
        wire_bytes={"squeezed": [10.0, 12.0, 11.0], "plain": [80.0, 80.0]},
        said_bytes={"squeezed": [10.0, 10.0, 10.0], "plain": [75.0, 75.0]},
        losses={"none": [], "squeezed": [[0, 5.0], [5, 4.0], [10, 3.0]], "plain": [[0, 5.0], [5, 3.9]]},
        rounds=6,
    )


def test_the_result_of_a_measurement():
    result = summarise(NetworkSpec(), measured(), command="trainingkit bench network")
    kept = result.checks[0]
    assert (kept.name, kept.goal) == ("kept_share", ">= 0.95")
    assert kept.value == pytest.approx(0.96)
    assert kept.holds
    assert result.holds
    rows = {row["contender"]: row for row in result.rows}
    assert rows["plain"]["ratio"] == pytest.approx(4.0)
    assert rows["plain"]["ratio_low"] is None
    assert rows["plain"]["error"] == "rank 1: gloo"
    assert rows["squeezed"]["wire_bytes"] == 11.0
    assert rows["none"]["wire_bytes"] is None
    assert rows["none"]["loss_equal_steps"] is None
    assert result.facts["rho"] == pytest.approx((4.4 - 1.25) / 1.25)
    assert result.notes == ["plain DDP stopped: rank 1: gloo"]


def test_losses_at_equal_steps_and_at_equal_time():
    found = measured()
    found.failed = {}
    found.seconds["squeezed"] = dict.fromkeys(range(6), 2.0)
    found.seconds["plain"] = dict.fromkeys(range(6), 8.0)
    result = summarise(NetworkSpec(), found, command="x")
    rows = {row["contender"]: row for row in result.rows}
    assert result.facts["equal_steps"] == 5
    assert (rows["squeezed"]["loss_equal_steps"], rows["plain"]["loss_equal_steps"]) == (4.0, 3.9)
    assert result.facts["equal_time_s"] == pytest.approx(20.0)
    assert rows["squeezed"]["loss_equal_time"] == 3.0
    assert rows["plain"]["loss_equal_time"] == pytest.approx(5.0 - 1.1 * 2.5 / 5)


def test_a_curve_gives_nothing_beyond_its_end():
    assert loss_at([[0, 5.0], [10, 3.0]], 4) == pytest.approx(4.2)
    assert loss_at([[0, 5.0], [10, 3.0]], 11) is None
    assert loss_at([[0, float("nan")]], 0) is None
    assert loss_at([], 0) is None


def test_nothing_to_judge_is_an_error_with_the_reason():
    found = measured()
    found.seconds.pop("squeezed")
    found.failed["squeezed"] = "rank 0: no such kernel"
    with pytest.raises(ClusterError, match="took no turn") as caught:
        summarise(NetworkSpec(), found, command="x")
    assert caught.value.found == "rank 0: no such kernel"


def test_a_measurement_survives_json():
    assert Measured.from_json(measured().to_json()) == measured()


def test_the_full_scale_is_the_model_that_peers_were_measured_with():
    info = DataInfo("bytes", "language", "", "", 1, 1, vocab_size=256, seq_len=256)
    section = choose(MODELS, SCALES["full"].model, field="model")
    assert section.parameter_count(info) == 10_818_432
    with pytest.raises(ConfigError, match="no scale called 'tini'") as caught:
        NetworkSpec(scale="tini").job()
    assert caught.value.next_step == "Did you mean 'tiny'?"


def test_interface_counters_leave_loopback_out():
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n"
    lo = "    lo:  900 1 0 0 0 0 0 0  900 1 0 0 0 0 0 0\n"
    eth = "  eth0: 7 1 0 0 0 0 0 0 4321 1 0 0 0 0 0 0\n"
    assert sent_bytes(head + lo + eth) == 4321
    assert sent_bytes(head + lo) is None


def test_a_stage_gives_whole_lines_once_and_its_gates_open(tmp_path):
    stage = Stage(tmp_path)
    assert stage.told(0) == ([], 0)
    stage.tell(part="timing", done=0.5)
    lines, place = stage.told(0)
    assert lines == [{"part": "timing", "done": 0.5}]
    with open(stage.progress, "a") as handle:
        handle.write(json.dumps({"part": "los"})[:-3])
    assert stage.told(place) == ([], place)
    stage.open_gate("shape")
    stage.pass_gate("shape", timeout_s=1.0)
    with pytest.raises(ClusterError, match="not changed"):
        stage.pass_gate("unshape", timeout_s=0.05)
