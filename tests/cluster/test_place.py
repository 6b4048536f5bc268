"""Where a process stands, read from torchrun's and SLURM's environments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainingkit.cluster.place import ALONE, OWN_LAUNCH, find_place, first_host
from trainingkit.core.errors import ClusterError

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_ID": "123456",
}


def test_without_a_launcher_there_is_one_process() -> None:
    assert find_place({}) == ALONE
    assert find_place({}).alone
    assert find_place({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1"}) == ALONE
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == ALONE, "inside sbatch, but not under srun"


def test_torchrun() -> None:
    place = find_place(TORCHRUN)
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == (5, 8, 1, 4)
    assert (place.master_addr, place.master_port, place.attempt, place.agent_store) == ("node1", 29500, 2, True)
    assert place.launcher == "torchrun" and not place.alone
    assert find_place({**TORCHRUN, OWN_LAUNCH: "77"}).launcher == "trainingkit"


def test_srun() -> None:
    place = find_place(SRUN)
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == (3, 4, 1, 2)
    assert (place.master_addr, place.launcher) == ("gpu07", "srun")
    assert place.master_port == find_place({**SRUN, "SLURM_PROCID": "0"}).master_port
    assert find_place({**SRUN, "MASTER_ADDR": "head", "MASTER_PORT": "4000"}).master_addr == "head"


@pytest.mark.parametrize(
    ("change", "problem", "field"),
    [
        ({"RANK": "8"}, "RANK does not fit WORLD_SIZE", "RANK"),
        ({"RANK": "two"}, "environment variable RANK is needed", "RANK"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR is not, so the workers cannot meet", "MASTER_ADDR"),
        ({"MASTER_PORT": None}, "environment variable MASTER_PORT is needed", "MASTER_PORT"),
        ({"MASTER_PORT": "0"}, "no port on which the workers could meet", "MASTER_PORT"),
    ],
)
def test_half_an_environment_is_explained(change: dict[str, str | None], problem: str, field: str) -> None:
    env = {key: value for key, value in {**TORCHRUN, **change}.items() if value is not None}
    with pytest.raises(ClusterError, match=problem) as caught:
        find_place(env)
    assert caught.value.field == field
    assert caught.value.expected


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("gpu[07-09,12],x", "gpu07"), ("n[3]", "n3"), ("r1-[010-020]-ib,z", "r1-010-ib")],
)
def test_first_host(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_a_node_list_that_cannot_be_read() -> None:
    with pytest.raises(ClusterError, match="node list cannot be read") as caught:
        first_host("")
    assert "Set MASTER_ADDR" in str(caught.value)


@given(world=st.integers(1, 10_000), data=st.data())
def test_every_rank_is_read_back(world: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, world - 1))
    place = find_place({**TORCHRUN, "RANK": str(rank), "WORLD_SIZE": str(world)})
    assert (place.rank, place.world_size) == (rank, world)
