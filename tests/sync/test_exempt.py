"""What is squeezed and what is not, and the parts of a bucket that follow from it."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from squeezed_models import net
from torch import nn

from trainingkit.sync.bucketplan import Carried, Run, split_bucket
from trainingkit.sync.exempt import TINY_ELEMENTS, odd_names, sparse_names, squeezed_names


class Decoder(nn.Module):
    """Says itself which module is the head, as transformers do."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 64)
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 128)
        self.head = nn.Linear(64, 300, bias=False)
        self.down = nn.Linear(128, 64)
        self.little = nn.Linear(8, 8)
        if tied:
            self.head.weight = self.words.weight

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def test_matrices_are_squeezed_and_the_delicate_is_not() -> None:
    for tied in (False, True):
        assert squeezed_names(Decoder(tied=tied)) == {"up.weight", "down.weight"}


def test_without_a_word_of_the_model_the_last_linear_layer_is_the_head() -> None:
    assert squeezed_names(net()) == {"0.weight", "3.weight", "5.weight", "7.weight"}
    assert squeezed_names(nn.Sequential(nn.Linear(99, 99))) == set()
    edge = nn.Sequential(nn.Linear(TINY_ELEMENTS // 64, 64), nn.Linear(64, TINY_ELEMENTS // 64 - 1), nn.Linear(2, 2))
    assert squeezed_names(edge) == {"0.weight"}


def test_what_gradients_cannot_be_carried() -> None:
    sparse = nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True), nn.Embedding(9, 4))
    assert sparse_names(sparse) == ["0"]
    sparse.requires_grad_(False)
    assert sparse_names(sparse) == []
    odd = nn.ParameterList(
        [nn.Parameter(torch.zeros(2, dtype=d)) for d in (torch.complex64, torch.float64, torch.bfloat16)]
    )
    assert odd_names(odd) == ["0 (complex64)", "1 (float64)"]


NAMED = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None, max_examples=150)
@given(
    parameters=NAMED,
    owners=st.integers(1, 5),
    granule=st.sampled_from([1, 8, 64]),
    bf16=st.booleans(),
    scale=st.sampled_from([0.5, 1.0]),
    direct_elements=st.sampled_from([1, 16, 10_000]),
)
def test_a_bucket_s_parts_hold_each_element_once(
    parameters: list[tuple[int, bool]], owners: int, granule: int, bf16: bool, scale: float, direct_elements: int
) -> None:
    """torchft's bucket loop skipped tensors that straddled a bucket; here each element goes out and comes back."""
    sizes = {f"p{index}": size for index, (size, _) in enumerate(parameters)}
    chosen = {f"p{index}" for index, (_, squeeze) in enumerate(parameters) if squeeze}
    kinds = split_bucket(list(sizes), sizes, chosen)
    assert [{run.name for run in runs} for runs in kinds] == [chosen, set(sizes) - chosen]
    total = sum(sizes.values())
    bucket = torch.arange(1.0, total + 1.0).to(torch.bfloat16 if bf16 else torch.float32)
    before = bucket.clone()
    for runs in filter(None, kinds):
        part = Carried(runs, owners=owners, granule=granule, direct_elements=direct_elements)
        part.take(bucket, scale)
        pieces = part.values.pieces
        assert [piece.start for piece in pieces] == [0, *itertools.accumulate(p.tensor.numel() for p in pieces)][:-1]
        assert not any(piece.start % granule for piece in pieces)
        whole = torch.cat([piece.tensor for piece in pieces])
        assert whole.numel() == part.layout.padded and not whole[part.layout.elements :].any()
        for run in runs:
            expected = before[run.in_bucket : run.in_bucket + run.elements].float() * scale
            assert torch.equal(whole[run.in_part : run.in_part + run.elements], expected)
        for piece in pieces:
            piece.tensor.mul_(2.0)
        part.put(bucket, 1.0 / scale)
    assert torch.equal(bucket, before * 2)


def test_only_a_bucket_on_the_cpu_in_fp32_is_used_in_place() -> None:
    part = Carried([Run("a", 3, 0, 5), Run("b", 9, 5, 30)], owners=1, granule=8, direct_elements=16)
    bucket = torch.arange(40.0)
    in_place = {dtype: in_place_elements(part, bucket.to(dtype)) for dtype in (torch.float32, torch.float16)}
    assert in_place == {torch.float32: 24, torch.float16: 0}


def in_place_elements(part: Carried, bucket: torch.Tensor) -> int:
    part.take(bucket, 1.0)
    own = bucket.untyped_storage().data_ptr()
    return sum(p.tensor.numel() for p in part.values.pieces if p.tensor.untyped_storage().data_ptr() == own)


def test_neighbours_are_copied_together() -> None:
    part = Carried([Run("a", 0, 0, 3), Run("b", 3, 3, 4), Run("c", 9, 7, 2)], owners=1, granule=1)
    assert [(s.in_bucket, s.in_part, s.elements) for s in part.stretches] == [(0, 0, 7), (9, 7, 2)]
