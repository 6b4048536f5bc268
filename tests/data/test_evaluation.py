import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.data.evaluation import eval_batches


class Numbers:
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def sample(self, index: int) -> dict[str, np.ndarray]:
        return {"x": np.array(index)}


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 60),
    batch_size=st.integers(1, 7),
    world_size=st.integers(1, 5),
    limit=st.none() | st.integers(0, 80),
)
def test_ranks_share_out_an_even_subset_without_repeats(n, batch_size, world_size, limit) -> None:
    got: list[int] = []
    for rank in range(world_size):
        batches = list(eval_batches(Numbers(n), batch_size, rank, world_size, limit))
        assert all(len(batch["x"]) == batch_size for batch in batches[:-1])
        got += [int(index) for batch in batches for index in batch["x"]]
    got.sort()
    wanted = n if limit is None else min(n, limit)
    assert len(set(got)) == len(got) == wanted
    gaps = np.diff([*got, n + got[0]]) if got else np.zeros(0)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_subset_does_not_depend_on_the_world_size(world_size: int) -> None:
    got = {
        int(index)
        for rank in range(world_size)
        for batch in eval_batches(Numbers(100), 4, rank, world_size, limit=10)
        for index in batch["x"]
    }
    assert got == set(range(0, 100, 10))
