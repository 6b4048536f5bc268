"""Programs on hosts: what they get, how they end, and errors that a person can act on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import until
from trainingkit.core.errors import ClusterError, ConfigError
from trainingkit.netlab import HostProcess, Lab, LabSpec

END_S = 20.0
KILL_FIRST_RELAY = """
for pid in $(ls /proc | grep -x '[0-9]*' | sort -n); do
    if [ "$pid" != 1 ] && grep -q 'netlab[.]holder' "/proc/$pid/cmdline"; then kill -9 "$pid"; exit; fi
done
"""


def said(process: HostProcess) -> str:
    process.wait(END_S)
    assert process.stdout is not None
    text = process.stdout.read().decode()
    process.close()
    return text


def refusal(lab: Lab) -> ClusterError | None:
    try:
        lab.run(0, ["true"]).wait(END_S)
    except ClusterError as error:
        return error
    return None


def shell(lab: Lab, host: int, line: str) -> str:
    return said(lab.run(host, ["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT))


def test_hosts_have_names_that_the_others_can_look_up(plain_lab: Lab):
    assert [shell(plain_lab, host, "hostname").strip() for host in plain_lab.hosts] == ["h0", "h1"]
    looked_up = "import socket; print(socket.gethostbyname('h1'))"
    process = plain_lab.run(0, [sys.executable, "-I", "-c", looked_up], stdout=subprocess.PIPE)
    assert said(process).strip() == plain_lab.address(1)
    assert plain_lab.name(1) == "h1"
    assert "h1" not in Path("/etc/hosts").read_text().split()


def test_a_host_has_one_interface_and_sees_only_the_lab(plain_lab: Lab):
    names = {line.split(":")[0].strip() for line in shell(plain_lab, 0, "cat /proc/net/dev").splitlines()[2:]}
    assert names == {"lo", "eth0"}
    assert "default" not in shell(plain_lab, 0, "ip route")
    processes = [int(name) for name in shell(plain_lab, 0, "ls /proc").split() if name.isdecimal()]
    assert len(processes) < 10


def test_input_output_environment_and_folder(plain_lab: Lab, tmp_path: Path):
    env = {"PATH": os.environ["PATH"], "WORD": "bread"}
    argv = ["sh", "-c", "read line; echo $line $WORD; pwd >&2; exit 5"]
    pipe = subprocess.PIPE
    process = plain_lab.run(1, argv, env=env, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    assert process.poll() is None
    process.stdin.write(b"fresh\n")
    process.stdin.flush()
    assert process.wait(END_S) == 5
    assert process.stderr.read().decode().strip() == str(tmp_path)
    assert said(process) == "fresh bread\n"


def test_output_to_a_file(plain_lab: Lab, tmp_path: Path):
    with open(tmp_path / "out", "wb") as out:
        process = plain_lab.run(0, ["sh", "-c", "echo a; echo b >&2"], stdout=out, stderr=subprocess.STDOUT)
        assert process.wait(END_S) == 0
    assert (tmp_path / "out").read_text() == "a\nb\n"


def test_signals_reach_the_program_or_its_whole_group(plain_lab: Lab):
    process = plain_lab.run(0, ["sleep", "60"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == -signal.SIGTERM
    family = plain_lab.run(0, ["sh", "-c", "sleep 61 & echo started; wait"], stdout=subprocess.PIPE)
    assert family.stdout is not None
    assert family.stdout.readline() == b"started\n"
    family.kill()
    assert family.wait(END_S) == -signal.SIGKILL
    assert family.stdout.read() == b""
    family.close()
    family.kill()


def test_waiting_too_long_says_who(plain_lab: Lab):
    process = plain_lab.run(1, ["sleep", "60"])
    with pytest.raises(ClusterError, match="on h1 still runs") as caught:
        plain_lab.wait([process], 0.05)
    assert "not ended after" in str(caught.value)
    process.kill()
    assert plain_lab.wait([process], END_S) == [-signal.SIGKILL]


def test_a_program_that_does_not_exist(plain_lab: Lab):
    with pytest.raises(ClusterError) as caught:
        plain_lab.run(1, ["no-such-program"])
    assert "cannot be started on h1" in str(caught.value)
    assert "no-such-program: No such file or directory" in str(caught.value)


def test_a_host_that_does_not_exist(plain_lab: Lab):
    with pytest.raises(ConfigError, match="There is no such host") as caught:
        plain_lab.address(2)
    assert caught.value.expected == "0 to 1"


@pytest.mark.usefixtures("can_lab")
def test_a_closed_lab_says_so_and_its_programs_have_ended():
    with Lab(LabSpec()) as lab:
        process = lab.run(0, ["sleep", "60"])
    assert process.wait(END_S) == -signal.SIGKILL
    with pytest.raises(ClusterError, match="The network lab is gone") as caught:
        lab.run(0, ["true"])
    assert caught.value.next_step == "Make a new one."
    lab.close()


@pytest.mark.usefixtures("can_lab")
def test_a_dead_relay_is_an_error():
    with Lab(LabSpec(delay_s=0.001)) as lab:
        if lab.netem:
            pytest.skip("this kernel has netem, so there is no relay")
        shell(lab, 0, KILL_FIRST_RELAY)
        error = until(lambda: refusal(lab), deadline_s=END_S, what="the end of the relay to be seen")
        assert "A relay, which adds delay and loss to a link, has died" in str(error)
        assert "link h0" in str(error)


@pytest.mark.usefixtures("can_lab")
def test_a_rate_beyond_our_relay_is_noted():
    with Lab(LabSpec(link="1gbit", loss=0.01)) as lab:
        if lab.netem:
            assert lab.notes == ()
        else:
            assert "Link h0 is to be 1 Gbit/s" in lab.notes[0]
            assert "500 Mbit/s" in lab.notes[0]
    with Lab(LabSpec(link="100mbit", loss=0.01)) as lab:
        assert lab.notes == ()
