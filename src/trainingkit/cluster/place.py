"""Where this process stands: its rank, its host's share, and who started it.

One identical command works everywhere: under torchrun and srun we read their environment and join; under our own
launch we are torchrun's elastic agent; without any launcher there is one process and no process group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainingkit.core.errors import ClusterError

OWN_LAUNCH = "TRAININGKIT_LAUNCH"
"""Set by our own launch for its workers, so that they can tell it from a torchrun of somebody else."""


@dataclass(frozen=True)
class Place:
    """One rank's place.

    Args:
        launcher: "none", "trainingkit", "torchrun" or "srun".
        attempt: how often the launcher has restarted the workers of this host, which is not the number of rounds of
            the job; `cluster.fence` tells rounds apart.
        max_restarts: how often the launcher may do that.
        agent_store: the launcher's own store is used, which outlives its workers.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    attempt: int = 0
    max_restarts: int = 0
    agent_store: bool = False

    @property
    def alone(self) -> bool:
        """True when there is no launcher: no process group at all."""
        return self.launcher == "none"


ALONE = Place(0, 1, 0, 1, "none")


def find_place(env: Mapping[str, str] | None = None) -> Place:
    """Read the place from the environment (torchrun's names first, then SLURM's).

    Raises:
        ClusterError: a variable is missing or is not a number, with its name.
    """
    env = os.environ if env is None else env
    if "RANK" in env and "WORLD_SIZE" in env:
        return _from_torchrun(env)
    if "SLURM_PROCID" in env and "SLURM_STEP_ID" in env and int(env.get("SLURM_NTASKS", "1")) > 1:
        return _from_slurm(env)
    return ALONE


def _from_torchrun(env: Mapping[str, str]) -> Place:
    rank, world_size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if not 0 <= rank < world_size:
        raise ClusterError(
            "RANK does not fit WORLD_SIZE.",
            field="RANK",
            found=rank,
            expected=f"0 to {world_size - 1}",
            next_step="Start with torchrun, or unset RANK and WORLD_SIZE for a single process.",
        )
    if "MASTER_ADDR" not in env:
        raise ClusterError(
            "RANK is set but MASTER_ADDR is not, so the workers cannot meet.",
            field="MASTER_ADDR",
            found="nothing",
            expected="the host of rank 0",
            next_step="Start with torchrun, or unset RANK and WORLD_SIZE for a single process.",
        )
    port = _number(env, "MASTER_PORT")
    if not 0 < port < 65536:
        raise ClusterError(
            "MASTER_PORT is no port on which the workers could meet.",
            field="MASTER_PORT",
            found=port,
            expected="1 to 65535",
            next_step="With torchrun on one host, use --standalone instead of --master-port 0.",
        )
    return Place(
        rank=rank,
        world_size=world_size,
        local_rank=_number(env, "LOCAL_RANK", rank),
        local_world_size=_number(env, "LOCAL_WORLD_SIZE", 1),
        launcher="trainingkit" if env.get(OWN_LAUNCH) else "torchrun",
        master_addr=env["MASTER_ADDR"],
        master_port=port,
        attempt=_number(env, "TORCHELASTIC_RESTART_COUNT", 0),
        max_restarts=_number(env, "TORCHELASTIC_MAX_RESTARTS", 0),
        agent_store=env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _from_slurm(env: Mapping[str, str]) -> Place:
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", "")
    per_node = re.match(r"\d+", env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", "1"))
    return Place(
        rank=_number(env, "SLURM_PROCID"),
        world_size=_number(env, "SLURM_NTASKS"),
        local_rank=_number(env, "SLURM_LOCALID", 0),
        local_world_size=int(per_node[0]) if per_node else 1,
        launcher="srun",
        master_addr=env.get("MASTER_ADDR") or first_host(nodes),
        master_port=_number(env, "MASTER_PORT", 20000 + _number(env, "SLURM_JOB_ID", 0) % 20000),
    )


def first_host(node_list: str) -> str:
    """The first host of a SLURM node list: 'gpu[07-09,12],x' -> 'gpu07'; 'a,b' -> 'a'."""
    match = re.match(r"([^,\[]+)(?:\[([0-9]+)[^\]]*\]([^,]*))?", node_list)
    if not match:
        raise ClusterError(
            "The SLURM node list cannot be read.",
            field="SLURM_STEP_NODELIST",
            found=repr(node_list),
            expected="for example node[01-04]",
            next_step="Set MASTER_ADDR to the host of rank 0.",
        )
    return match[1] + (match[2] or "") + (match[3] or "")


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ClusterError(
            f"The environment variable {name} is needed to join the other workers.",
            field=name,
            found=repr(text),
            expected="a whole number",
            next_step="Start with torchrun or srun, or unset RANK and WORLD_SIZE for a single process.",
        ) from None
