"""The trainer's DDP: buckets keep one layout, and vectors do not hold the matrices' buckets back."""

from __future__ import annotations

import pytest
import torch
from squeezed_models import digest, gradients, net, train, wrapped
from torch import nn
from torch.futures import Future

from ranks import Context, Pool
from trainingkit.sync.plain import wrap

LAYERS = 4


class Layer(nn.Module):
    """As in a decoder: norms are registered after the matrices, and the first of them is used first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.before, self.between = nn.LayerNorm(64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, 64] to the same."""
        return x + self.outer(self.between(self.inner(self.before(x))))


def buckets(context: Context) -> list[list[list[int]]]:
    """Per step and bucket: how many dimensions each parameter has."""
    seen: list[list[int]] = []
    ddp = wrap(nn.Sequential(*(Layer() for _ in range(LAYERS))), context.group, bucket_mb=0.02)

    def note(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads the annotations
        seen.append([parameter.dim() for parameter in bucket.parameters()])
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    ddp.register_comm_hook(None, note)
    steps = []
    for _ in range(3):
        seen.clear()
        ddp(torch.ones(2, 64)).sum().backward()
        steps.append(list(seen))
    return steps


def test_vectors_are_in_the_last_bucket_and_nothing_is_rebuilt(pool: Pool) -> None:
    for steps in pool.run(buckets, 2):
        assert steps[0] == steps[1] == steps[2]
        *first, last = steps[0]
        assert len(first) >= 2 and all(set(dims) == {2} for dims in first)
        assert last.count(1) == 4 * LAYERS and sum(map(len, steps[0])) == 6 * LAYERS


def beside_a_scripts_own(context: Context) -> tuple[bool, float]:
    """Whether the first step's gradients have the bits of a script's own DDP, and the largest relative difference."""
    own, ours = wrapped(net()), wrap(net(), context.group, bucket_mb=0.02)
    for ddp in (own, ours):
        train(ddp, context, range(1))
    pairs = list(zip(gradients(own), gradients(ours), strict=True))
    apart = max(float((a - b).norm() / a.norm()) for a, b in pairs)
    return digest(gradients(own)) == digest(gradients(ours)), apart


@pytest.mark.parametrize(("ranks", "same_bits"), [(2, True), (3, False)])
def test_its_sums_are_those_of_a_scripts_own_on_two_ranks_and_rounded_otherwise_on_three(
    pool: Pool, ranks: int, same_bits: bool
) -> None:
    for same, apart in pool.run(beside_a_scripts_own, ranks):
        assert same == same_bits and apart < 1e-5
