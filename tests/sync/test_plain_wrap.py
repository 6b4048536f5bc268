"""The trainer's DDP: buckets keep one layout, and vectors do not hold the matrices' buckets back."""

from __future__ import annotations

import torch
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
