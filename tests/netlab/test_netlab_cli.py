"""`trainingkit netlab` as a person sees it."""

from __future__ import annotations

import pytest

from trainingkit.cli.netlab import netlab
from trainingkit.core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("can_lab")


def test_a_command_runs_on_every_host_and_its_lines_are_told_apart(capfd: pytest.CaptureFixture[str]):
    assert netlab("sh", "-c", "echo rank $RANK of $WORLD_SIZE; echo hm >&2", hosts=3) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [f"h{rank} | rank {rank} of 3" for rank in range(3)]
    assert sorted(err.splitlines()) == [f"h{rank} | hm" for rank in range(3)]


def test_the_first_failure_gives_the_exit_code(capfd: pytest.CaptureFixture[str]):
    assert netlab("sh", "-c", "test $RANK = 1 && exit 7; sleep 60", hosts=2) == 7
    assert "error: rank 1 on h1 failed first: it ended with exit code 7." in capfd.readouterr().err
    assert netlab("sh", "-c", "test $RANK = 0 && kill -9 $$; sleep 60", hosts=2) == 137
    assert "it was ended by signal 9" in capfd.readouterr().err


def test_without_a_command_it_prints_what_the_links_carry(capfd: pytest.CaptureFixture[str]):
    assert netlab(links="50mbit,unshaped", delay="5ms") == 0
    out = capfd.readouterr().out
    assert "Mbit/s of TCP payload" in out
    assert "Round trip, ms" in out
    rates = [float(word) for line in out.splitlines() if "h0" in line for word in line.split() if word[0].isdigit()]
    assert 25 <= rates[0] <= 51
    assert rates[1] >= 10


def test_a_note_where_the_lab_is_less_than_asked(capfd: pytest.CaptureFixture[str]):
    assert netlab("true", link="10gbit", delay="1ms") == 0
    assert "Note: Link h0 is to be 10 Gbit/s" in capfd.readouterr().err


def test_bad_words_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="not a quantity") as caught:
        netlab(delay="soon")
    assert caught.value.field == "--delay"
