"""A process that dies in mid-line loses that line only: what is appended afterwards stands alone."""

import pytest

from trainingkit.core import decisions
from trainingkit.core.records import EventRecord, RecordWriter, read_records


@pytest.mark.parametrize("cut", ['{"step": 1, "cho', "\udcff\udcfe"])
def test_a_decision_after_a_cut_line_is_kept(tmp_path, cut):
    path = tmp_path / "decisions.jsonl"
    decisions.record(path, step=1, choice="threads", value=2, reason="first")
    with open(path, "a", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(cut)
    decisions.record(path, step=2, choice="threads", value=3, reason="second")
    assert [row["reason"] for row in decisions.read(path)] == ["first", "second"]


def test_a_record_after_a_cut_line_is_kept(tmp_path):
    path = tmp_path / "rank-0.jsonl"
    for attempt in (1, 2):
        writer = RecordWriter(path)
        writer.write(EventRecord(attempt, 5, 0.0, "resume", f"attempt {attempt}"))
        writer.close()
        with open(path, "a", encoding="utf-8") as handle:
            handle.write('{"kind": "ev')
    records, bad = read_records(path)
    assert [record.attempt for record in records] == [1, 2]
    assert bad == 2
