"""Islands of a lab are found by measuring, and the exchange on two levels runs over them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from trainingkit.bench.exchange.spec import FLAT, HIERARCHICAL, ISLANDS, TWIN, Task
from trainingkit.bench.exchange.worker import TASK, measured_path
from trainingkit.netlab import Lab, LabSpec, spec_from_texts

pytestmark = pytest.mark.usefixtures("can_lab")


def test_hosts_behind_a_slow_link_are_islands(tmp_path: Path) -> None:
    task = Task(how=ISLANDS, ranks=4, islands=[[0, 1], [2, 3]], elements=50_000, rounds=1, most_s=0.1)
    (tmp_path / TASK).write_text(task.model_dump_json(), encoding="utf-8")
    with Lab(LabSpec(hosts=4, islands=(2, 2), between="10mbit")) as lab:
        argv = [sys.executable, "-m", "trainingkit.bench.exchange.worker", str(tmp_path)]
        lab.launch(argv, deadline_s=100.0, env={"OMP_NUM_THREADS": "1"})
    measured = json.loads(measured_path(tmp_path, 0).read_text(encoding="utf-8"))
    assert measured["found"] == [[0, 1], [2, 3]]
    assert measured["reason"].startswith("between the islands 0,1 + 2,3 256 kB take ")
    assert set(measured["turns"]["seconds"]) == {FLAT, TWIN, HIERARCHICAL}
    assert not measured["turns"]["failed"]
    for rank in range(1, 4):
        again = json.loads(measured_path(tmp_path, rank).read_text(encoding="utf-8"))
        assert again["turns"] == measured["turns"] and again["found"] == measured["found"]


def test_a_number_of_islands_is_enough() -> None:
    assert spec_from_texts(islands="2", between="20mbit") == LabSpec(hosts=4, islands=(2, 2), between="20mbit")
    assert spec_from_texts(islands="3", hosts=9).islands == (3, 3, 3)
