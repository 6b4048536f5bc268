"""Is the network what it says? Rates, sharing, delay and loss, measured from inside."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from netlab_streams import end_stream, received_bps, start_stream, wait_for_bytes

from trainingkit.netlab import Lab, LabSpec, measure_pair

pytestmark = pytest.mark.usefixtures("can_lab")
LOW, HIGH = 0.9, 1.02
ATTEMPTS = 3
COUNT_LOST = Path(__file__).with_name("netlab_count_lost.py")


def assert_true_to(rate_bps: float, measure: Callable[[], float]) -> None:
    """Within bounds at one of three attempts: other work on the machine disturbs a measurement, not a wrong bucket."""
    found = []
    for _ in range(ATTEMPTS):
        found.append(measure())
        if LOW * rate_bps <= found[-1] <= HIGH * rate_bps:
            return
    pytest.fail(f"{found} for {rate_bps:.4g} bit/s")


def assert_round_trip(trip_s: float, lab: Lab, source: int, target: int) -> None:
    """Never shorter than stated; at most a fifth longer at one of three attempts."""
    found = [math.inf]
    while found[-1] > 1.2 * trip_s and len(found) <= ATTEMPTS:
        found.append(measure_pair(lab, source, target, seconds=0.05, pings=9).round_trip_s)
        assert found[-1] >= trip_s
    assert found[-1] <= 1.2 * trip_s, found


@pytest.mark.parametrize(("rate", "rate_bps"), [("25mbit", 25e6), ("100mbit", 100e6)])
def test_a_transfer_reaches_the_stated_rate_in_both_directions(rate: str, rate_bps: float):
    with Lab(LabSpec(hosts=2, link=rate)) as lab:
        assert_true_to(rate_bps, lambda: measure_pair(lab, 0, 1, seconds=1.2).payload_bps)
        assert_true_to(rate_bps, lambda: measure_pair(lab, 1, 0, seconds=1.2).payload_bps)


def test_unequal_links_and_a_change_in_mid_run():
    with Lab(LabSpec(hosts=3, links=("100mbit", "unshaped", "20mbit"))) as lab:
        assert_true_to(20e6, lambda: measure_pair(lab, 1, 2, seconds=1.2).payload_bps)
        stream = start_stream(lab, 1, 0, 5000)
        wait_for_bytes(lab, 0, 1_000_000)
        assert_true_to(100e6, lambda: received_bps(lab, [0], 8_000_000))
        lab.set_rate(0, "10mbit")
        assert_true_to(10e6, lambda: received_bps(lab, [0], 1_000_000))
        lab.set_rate(0, "unshaped")
        assert received_bps(lab, [0], 20_000_000) > 200e6
        lab.set_rate(0, "50mbit")
        wait_for_bytes(lab, 0, 1_000_000)
        assert_true_to(50e6, lambda: received_bps(lab, [0], 5_000_000))
        end_stream(stream)


def test_islands_share_the_slower_link():
    with Lab(LabSpec(hosts=4, link="100mbit", islands=(2, 2), between="20mbit")) as lab:
        assert_true_to(100e6, lambda: measure_pair(lab, 0, 1, seconds=0.7).payload_bps)
        streams = [start_stream(lab, 0, 2, 5000), start_stream(lab, 1, 3, 5001)]
        wait_for_bytes(lab, 2, 200_000)
        wait_for_bytes(lab, 3, 200_000)
        assert_true_to(20e6, lambda: received_bps(lab, [2, 3], 2_500_000))
        lab.set_between("40mbit")
        assert_true_to(40e6, lambda: received_bps(lab, [2, 3], 5_000_000))
        for stream in streams:
            end_stream(stream)


def test_a_round_trip_takes_twice_the_delay_and_the_rate_stays():
    with Lab(LabSpec(hosts=2, link="100mbit", delay_s=0.02)) as lab:
        assert_round_trip(0.040, lab, 0, 1)
        streams = [start_stream(lab, 0, 1, 5000 + each) for each in range(4)]
        wait_for_bytes(lab, 1, 6_000_000)
        assert_true_to(100e6, lambda: received_bps(lab, [1], 12_000_000))
        for stream in streams:
            end_stream(stream)


def test_delay_between_islands_comes_on_top():
    with Lab(LabSpec(hosts=3, islands=(2, 1), delay_s=0.005, between_delay_s=0.02)) as lab:
        assert_round_trip(0.010, lab, 0, 1)
        assert_round_trip(0.050, lab, 0, 2)


def test_loss_is_as_stated_and_counted():
    sent, share = 3000, 0.1
    with Lab(LabSpec(hosts=2, loss=share)) as lab:
        argv = [sys.executable, "-I", "-S", str(COUNT_LOST)]
        counter = lab.run(1, [*argv, "count"], stdout=subprocess.PIPE)
        sender = lab.run(0, [*argv, "send", lab.address(1), str(sent)])
        assert lab.wait([sender, counter], 30) == [0, 0]
        assert counter.stdout is not None
        lost = sent - json.loads(counter.stdout.read())
        counter.close()
        on_purpose = lab.relay_counters()["h0"].lost if not lab.netem else lost
    assert abs(lost - share * sent) < 5 * (sent * share * (1 - share)) ** 0.5
    assert lost <= on_purpose <= lost + 40


def test_the_interface_counts_what_was_sent(plain_lab: Lab):
    n_bytes = 5_000_000
    before = [plain_lab.counters(host) for host in plain_lab.hosts]
    argv = [sys.executable, "-I", "-S", str(COUNT_LOST)]
    taker = plain_lab.run(1, [*argv, "take"], stdout=subprocess.PIPE)
    assert taker.stdout is not None
    assert taker.stdout.readline() == b"ready\n"
    giver = plain_lab.run(0, [*argv, "give", plain_lab.address(1), str(n_bytes)], stdout=subprocess.PIPE)
    assert giver.stdout is not None
    assert plain_lab.wait([giver, taker], 20) == [0, 0]
    assert json.loads(taker.stdout.read()) == n_bytes
    again = 1514 * json.loads(giver.stdout.read())
    taker.close()
    giver.close()
    after = [plain_lab.counters(host) for host in plain_lab.hosts]
    sent = after[0].sent_bytes - before[0].sent_bytes
    received = after[1].received_bytes - before[1].received_bytes
    assert n_bytes < sent, "each byte passes once; what the queue dropped was not counted before it was sent again"
    assert sent - again < 1.06 * n_bytes
    assert abs(sent - received) < 1000
    assert after[0].sent_packets > before[0].sent_packets
    assert after[1].sent_bytes - before[1].sent_bytes < 0.1 * n_bytes


def test_two_labs_do_not_meet_and_do_not_slow_each_other():
    with Lab(LabSpec(hosts=2, link="50mbit")) as one, Lab(LabSpec(hosts=2, link="20mbit")) as two:
        streams = [(one, start_stream(one, 0, 1, 5000)), (two, start_stream(two, 0, 1, 5000))]
        wait_for_bytes(one, 1, 500_000)
        wait_for_bytes(two, 1, 500_000)
        assert_true_to(50e6, lambda: received_bps(one, [1], 4_000_000))
        assert_true_to(20e6, lambda: received_bps(two, [1], 2_000_000))
        for _lab, stream in streams:
            end_stream(stream)
        one.close()
        assert two.run(0, ["true"]).wait(5) == 0
