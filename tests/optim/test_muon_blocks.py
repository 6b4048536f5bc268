"""Muon in blocks of rows is torch's Muon over matrices that were cut by hand, bit for bit, with one whole momentum."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from muon_nets import HIDDEN, ByHand, bits, channels_last, make, muon, put_gradients, state_bits

from trainingkit.core.errors import ConfigError
from trainingkit.core.section import check
from trainingkit.optim.optimizers.muon import MuonSection


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("rows", [1, 5, 16, 96, 1000])
@pytest.mark.parametrize("laid_out", [lambda model: model, channels_last])
def test_blocks_are_matrices_that_were_cut_by_hand(kind, rows, laid_out):
    ours, theirs = laid_out(make(kind)), make(kind)
    optimizer, by_hand = muon(ours, block_rows=rows), ByHand(theirs, HIDDEN[kind], rows=rows)
    for step in range(3):
        put_gradients(theirs, step)
        for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert other.grad is not None
            parameter.grad = torch.empty_like(parameter).copy_(other.grad)
        optimizer.step()
        by_hand.step()
    assert bits(ours) == bits(theirs)
    named = dict(ours.named_parameters())
    momenta = {name: optimizer.state[named[name]]["momentum_buffer"] for name in HIDDEN[kind]}
    assert bits(momenta) == bits(by_hand.momenta())


@pytest.mark.parametrize("kind", HIDDEN)
def test_the_state_does_not_tell_the_blocks_so_another_number_of_rows_goes_on_with_it(kind):
    model = make(kind)
    optimizer = muon(model, block_rows=7)
    put_gradients(model, 0)
    optimizer.step()
    kept, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    found = []
    for rows in (7, None):
        other = make(kind, seed=1)
        other.load_state_dict(kept)
        fresh = muon(other, block_rows=rows)
        fresh.load_state_dict(state)
        for group in fresh.param_groups:
            if group["algorithm"] == "muon":
                group["block_rows"] = rows
        put_gradients(other, 1)
        fresh.step()
        found.append(state_bits(other, fresh))
    put_gradients(model, 1)
    optimizer.step()
    assert found[0] == state_bits(model, optimizer)
    assert found[1] != found[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 40), st.integers(0, 2**31))
def test_each_block_of_an_update_is_about_orthogonal(rows, columns, block, seed):
    generator = torch.Generator().manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Embedding(3, columns), torch.nn.Linear(columns, rows, bias=False), torch.nn.Linear(rows, 2)
    )
    weight = net[1].weight
    assert isinstance(weight, torch.nn.Parameter)
    optimizer = muon(net, muon_lr=1.0, weight_decay=0.0, block_rows=block)
    before = weight.detach().clone()
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    for part in (before - weight.detach()).split(block):
        scale = max(1.0, part.shape[0] / part.shape[1]) ** 0.5
        values = torch.linalg.svdvals(part / scale)
        assert values[0] < 1.35, "Newton-Schulz lets no singular value grow beyond this"
        assert values.square().mean() > 0.3


def test_blocks_without_rows_are_refused():
    with pytest.raises(ConfigError) as caught:
        check(MuonSection, {"block_rows": 0}, field="optimizer")
    assert caught.value.field == "optimizer.block_rows"
