"""Who may make a lab: root, or a user with user namespaces; everybody else is told why not, and what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from trainingkit.netlab.holder import refusal

pytestmark = pytest.mark.usefixtures("can_lab")
LAB = """
from trainingkit.core.errors import ClusterError
from trainingkit.netlab import Lab, LabSpec
try:
    with Lab(LabSpec(hosts=2, link="100mbit", delay_s=0.001)) as lab:
        print(lab.wait([lab.run(host, ["ip", "route"], stdout=-3) for host in lab.hosts], 10))
except ClusterError as error:
    print(error)
"""
AS_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
NO_MORE = """
echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --bounding-set -all --inh-caps -all "$0" "$@"
"""


def said_by(*wrapper: str) -> str:
    done = subprocess.run([*wrapper, sys.executable, "-c", LAB], capture_output=True, check=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


def test_a_user_who_is_not_root_gets_a_lab_through_a_user_namespace():
    assert said_by(*AS_USER) == "[0, 0]\n"


def test_without_root_and_without_user_namespaces_it_is_refused():
    said = said_by("unshare", "-Ur", "sh", "-c", NO_MORE)
    assert "A network lab needs namespaces of its own, and the kernel refused them." in said
    assert "No space left on device" in said
    assert "root, or a user who may make user namespaces" in said
    assert "sysctl user.max_user_namespaces" in said


def test_without_iproute2_it_says_what_to_install(tmp_path: object):
    said = said_by("env", f"PATH={tmp_path}")
    assert "A network lab needs the program `tc`." in said
    assert "apt install iproute2" in said


@pytest.mark.parametrize(
    ("number", "way"),
    [
        (errno.EPERM, "kernel.unprivileged_userns_clone=1"),
        (errno.EACCES, "kernel.apparmor_restrict_unprivileged_userns=0"),
        (errno.ENOSPC, "user.max_net_namespaces"),
        (errno.EINVAL, "run as root"),
    ],
)
def test_the_next_step_fits_the_cause(number: int, way: str):
    error = refusal(OSError(number, os.strerror(number)))
    assert way in str(error)
    assert f"user {os.geteuid()}" in str(error)
    assert "CAP_SYS_ADMIN" in str(error)
