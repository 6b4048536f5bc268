"""Tensors in a nested state: out and back, and no two of them under one name."""

import pytest
import torch

from trainingkit.core.errors import CheckpointError, PeerLost
from trainingkit.core.outcome import failed
from trainingkit.recovery import attach_tensors, detach_tensors
from trainingkit.recovery.together import peer_lost


def test_round_trip():
    state = {"residual": {"w": torch.arange(3.0)}, "list": [torch.ones(1), 2], "pair": (torch.zeros(2), "x"), "n": None}
    tensors, plain = detach_tensors(state, "rank-0/sync")
    assert set(tensors) == {"rank-0/sync/residual/w", "rank-0/sync/list/0", "rank-0/sync/pair/0"}
    back = attach_tensors(plain, tensors)
    assert back["residual"]["w"] is state["residual"]["w"]
    assert back["list"][1] == 2 and back["pair"][0] is state["pair"][0]


@pytest.mark.parametrize(
    "state", [{"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}, {1: torch.ones(1), "1": torch.zeros(1)}]
)
def test_two_tensors_of_one_name_are_refused(state):
    with pytest.raises(CheckpointError, match="same name"):
        detach_tensors(state, "x")


def test_a_lost_peer_is_never_the_first_cause():
    error = peer_lost("writing a snapshot", RuntimeError("Connection closed by peer"))
    assert isinstance(error, CheckpointError) and isinstance(error, PeerLost)
    assert failed(0, 3, error).secondary
