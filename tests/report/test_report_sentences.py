"""The page's sentences: what is said of runs that went well, went badly, or left next to nothing."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from pathlib import Path

import pytest
import report_runs as runs

from trainingkit.core.records import Record
from trainingkit.report import read_run, sentences, steptable, summary


def said(run) -> str:
    data = read_run(run)
    table = steptable.build(data.ranks)
    total_s = float(table.elapsed_s[-1]) if len(table) else 0.0
    return sentences.loss_sentence(summary.loss_change(data, table), len(table), total_s)


def with_evals(folder: Path, first: float | None, last: float | None, *middle: float) -> str:
    losses = [first, *middle, last]
    evals: list[Record] = [runs.evaluation(n, loss) for n, loss in enumerate(losses)]
    return said(runs.make_run(folder, {0: [runs.start(), *[runs.step(n) for n in range(1, 11)], *evals]}))


def test_validation_that_fell_is_said_with_both_ends_the_steps_and_the_time(tmp_path):
    assert with_evals(tmp_path, 5.0, 2.0) == "Validation bits per byte fell from 7.21 to 2.89 in 10 steps (6 s)."


def test_validation_that_rose_or_is_flat_is_said_so(tmp_path):
    rose = with_evals(tmp_path / "a", 2.0, 5.0, 1.0)
    assert rose.startswith("Validation bits per byte rose from 2.89 to 7.21 in 10 steps")
    assert rose.endswith("Its best was 1.44, at step 1.")
    assert "stayed flat, from 2.89 to 2.89, in 10 steps" in with_evals(tmp_path / "b", 2.0, 2.001)


def test_a_loss_that_is_not_a_number_is_never_called_a_success(tmp_path):
    broken = with_evals(tmp_path / "a", 2.0, None)
    assert "is not a number at the end: the training broke down" in broken
    assert broken.endswith("Its best was 2.89, at step 0.")
    assert "was not a number at first and is 2.89" in with_evals(tmp_path / "b", None, 2.0)
    assert "is not a number at the end" in with_evals(tmp_path / "c", None, None)


def test_without_evaluations_the_training_loss_speaks_and_that_is_said(tmp_path):
    falling: list[Record] = [runs.step(n, 4.0 - n / 20) for n in range(1, 41)]
    text = said(runs.make_run(tmp_path, {0: [runs.start(), *falling]}))
    assert text.startswith("Training loss fell from 3.92 to 2.02 in 40 steps (24 s).")
    assert text.endswith("Nothing was evaluated on held-out data.")


def test_one_aborted_step_near_the_end_does_not_spoil_the_training_loss(tmp_path):
    rows: list[Record] = [runs.step(n, 4.0 - n / 20) for n in range(1, 41)]
    rows[-1] = runs.step(40, None, committed=False)
    assert said(runs.make_run(tmp_path / "a", {0: rows})).startswith("Training loss fell from 3.92 to 2.05")
    rows[-3:] = [runs.step(n, None) for n in (38, 39, 40)]
    assert said(runs.make_run(tmp_path / "b", {0: rows})).startswith("Training loss is not a number at the end")


def test_one_evaluation_shows_no_change(tmp_path):
    rows: list[Record] = [runs.start(), runs.step(1, 3.0), runs.step(2, 1.0), runs.evaluation(2, 1.0)]
    assert said(runs.make_run(tmp_path, {0: rows})).endswith("was evaluated only once, so it shows no change.")


def test_no_steps(tmp_path):
    assert said(runs.make_run(tmp_path, {})) == "No step was recorded, so there is no loss to speak of."


def test_time_shares_are_of_the_step_and_add_up(tmp_path):
    data = read_run(runs.make_run(tmp_path, {0: [runs.start(), runs.step(1), runs.step(2)]}))
    shares = summary.time_shares(data, steptable.build(data.ranks))
    assert shares is not None
    assert sum(shares.shares.values()) == pytest.approx(1.0)
    assert sentences.time_sentence(shares) == "Of each step's 600 ms: backward 50 %, forward 33 % and stall 17 %."
    assert sentences.between_sentence(shares) == ""


def test_time_that_no_phase_accounts_for_is_other(tmp_path):
    rows: list[Record] = [runs.step(1, phases={"forward": 0.3})]
    table = steptable.build(read_run(runs.make_run(tmp_path, {0: rows})).ranks)
    assert table.phases["other"].tolist() == pytest.approx([0.3])


def ranked(folder: Path, *own_s: float, step_s: float = 1.0) -> summary.Comparison:
    rows: dict[int, list[Record]] = {}
    for rank, own in enumerate(own_s):
        phases = {"forward": own, "stall": step_s - own}
        steps: list[Record] = [runs.step(n, step_s=step_s, phases=phases) for n in range(1, 4)]
        rows[rank] = [runs.start(rank, len(own_s)), *steps]
    return summary.compare(read_run(runs.make_run(folder, rows)))


def test_the_slowest_of_two_is_compared_with_the_other(tmp_path):
    text = sentences.rank_sentence(ranked(tmp_path, 0.5, 0.9))
    expected = "Rank 1 on host-b was slowest: its own work took 1.80x rank 0's, which waited 500 ms a step"
    assert text == f"{expected} for it and the network."


def test_the_slowest_of_many_is_compared_with_the_median_of_the_others(tmp_path):
    comparison = ranked(tmp_path, 0.5, 0.5, 0.8, 0.4)
    assert comparison.slowest is not None and comparison.slowest.rank == 2
    assert "its own work took 1.60x the median of the others, and they waited" in sentences.rank_sentence(comparison)


def test_ranks_within_three_percent_are_even_and_ties_name_nobody(tmp_path):
    assert sentences.rank_sentence(ranked(tmp_path / "a", 0.50, 0.51)) == (
        "The 2 ranks were even: their own work differed by 2 %."
    )
    tie = ranked(tmp_path / "b", 0.5, 0.5, 0.5)
    assert tie.slowest is None and sentences.rank_figure(tie) == "all even"


def test_one_rank_and_no_rank(tmp_path):
    assert sentences.rank_sentence(ranked(tmp_path / "a", 0.5)).startswith("One process did all the work")
    assert sentences.rank_sentence(ranked(tmp_path / "b")) == "No rank recorded a step."


def test_a_rank_of_an_earlier_attempt_is_left_out_by_name(tmp_path):
    rows: dict[int, list[Record]] = {r: [runs.start(r, 2), runs.step(1)] for r in range(2)}
    rows[0] += [runs.start(0, 1, attempt=2), runs.step(2, attempt=2)]
    comparison = summary.compare(read_run(runs.make_run(tmp_path, rows)))
    assert [r.rank for r in comparison.ranks] == [0] and comparison.left_out == (1,)


def ended(run) -> str:
    data = read_run(run)
    return sentences.ending_sentence(summary.ending(data), data.attempts, 160)


def test_how_it_ended(tmp_path):
    rows: dict[int, list[Record]] = {r: [runs.start(r, 2), runs.step(1)] for r in range(2)}
    run = runs.make_run(tmp_path, rows)
    assert ended(run) == "No rank said how it ended: it still runs, or was killed after step 160."
    runs.end(run, 2)
    assert ended(run) == "It finished at step 160."
    runs.end(run, 2, "preempted", 80)
    assert ended(run) == "Stopped on request after step 80; the state is saved."
    runs.end(run, 1, "failed", 81, host="host-a", message="The disk is full.\n  field: x")
    assert summary.ending(read_run(run)).message.endswith("The disk is full.\n  field: x")
    assert ended(run) == "Rank 0 on host-a failed at step 81."


def test_a_run_whose_process_lives_is_running_and_one_whose_process_is_gone_was_killed(tmp_path):
    here = runs.start(host=socket.gethostname(), pid=os.getpid(), time_s=time.time())
    run = runs.make_run(tmp_path / "alive", {0: [here, runs.step(1)]})
    assert ended(run).startswith("It is still running; step 160")
    gone = dataclasses.replace(here, pid=runs.DEAD_PID)
    run = runs.make_run(tmp_path / "gone", {0: [gone, runs.step(1)]})
    assert ended(run).startswith("Rank 0 died: it left no word of how, so it was killed")


def test_a_killed_rank_is_named_and_not_the_one_that_lost_it(tmp_path):
    run = runs.make_run(tmp_path, {r: [runs.start(r, 2), runs.step(1)] for r in range(2)})
    runs.end(run, 1, "failed", 1, message="Lost rank 1.", secondary=True)
    assert ended(run).startswith("Rank 1 died: it left no word of how")


def test_early_stop_attempts_and_plan_are_told():
    end = summary.Ending("done", "")
    assert sentences.ending_sentence(end, 3, 90, "no gain in 5 evaluations") == (
        "It finished at step 90. It stopped early: no gain in 5 evaluations It took 3 attempts."
    )
    text = sentences.run_sentence({"name": "llama", "parameters": 6.3e6}, {"name": "text"}, 1, 90, 1600)
    assert text == "llama, 6.3 M parameters on text; 1 worker, 90 steps of 1 600 planned."
    assert sentences.run_sentence({}, {}, 2, 0, None) == "model not recorded; 2 workers, 0 steps."


def test_bytes_sentence():
    assert sentences.bytes_sentence(4e6, {}) == "On average a rank sent 4 MB a step."
    squeezed = sentences.bytes_sentence(4e6, {"fp32_bytes": 32e6, "bf16_bytes": 16e6})
    assert squeezed.endswith("Plain DDP would send 16 MB with a bf16 wire (4.0x) and 32 MB with a fp32 wire (8.0x).")
    assert sentences.bytes_sentence(32e6, {"fp32_bytes": 32e6}).endswith("sent 32 MB a step.")
