"""The list of candidates: unique names, each is made and says its cost, codecs of the package are real ones."""

from __future__ import annotations

import pytest
import torch

from trainingkit.bench.frontier.coder import Exact
from trainingkit.bench.frontier.coders import Outer, TwoSided
from trainingkit.bench.frontier.reference import REFERENCES
from trainingkit.bench.frontier.schemes import SCHEMES
from trainingkit.bench.frontier.task import TASKS
from trainingkit.codec import message_bytes

SHAPE = (128, 96)
BY_NAME = {scheme.name: scheme for scheme in SCHEMES}


def test_names_are_unique_and_short_and_tasks_exist():
    assert len(BY_NAME) == len(SCHEMES)
    assert not BY_NAME.keys() & {scheme.name for scheme in REFERENCES.values()}
    for scheme in SCHEMES:
        assert len(scheme.name) <= 20
        assert scheme.name.isascii()
        assert " " not in scheme.name
        assert set(scheme.tasks) <= set(TASKS.names())
    assert len({scheme.label for scheme in SCHEMES}) == len(SCHEMES)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_scheme_makes_coders_that_agree_and_cost_less_than_fp32(name):
    scheme = BY_NAME[name]
    makers = [scheme.coder, *(make for _, make in scheme.warmup)]
    ys = [torch.randn(SHAPE, generator=torch.Generator().manual_seed(worker)) for worker in range(4)]
    for make in makers:
        coder = make()
        agreed = coder.agree(ys, "weight", 0)
        assert agreed.mean.shape == SHAPE
        assert agreed.mean.isfinite().all()
        bits = coder.bits(SHAPE) / scheme.every / (128 * 96)
        assert 0 < bits < 17
        assert make() is not coder, "a run has a coder of its own"


@pytest.mark.parametrize("name", [name for name, scheme in BY_NAME.items() if scheme.in_package])
def test_codecs_of_the_package_cost_their_real_bytes(name):
    scheme = BY_NAME[name]
    assert scheme.coder().bits(SHAPE) == 8 * message_bytes(scheme.spec, 128 * 96)


def test_warm_up_shares_ascend_below_the_whole_run():
    for scheme in SCHEMES:
        shares = [share for share, _ in scheme.warmup]
        assert shares == sorted(set(shares))
        assert all(0 < share < 1 for share in shares)


def test_diloco_takes_an_exact_outer_step():
    coder = BY_NAME["diloco"].coder()
    assert isinstance(coder, Outer)
    assert isinstance(coder.coder, Exact)
    assert (coder.rate, coder.momentum) == (0.7, 0.9)


def test_both_sides_of_a_scheme_decay_alike():
    for scheme in SCHEMES:
        coder = scheme.coder()
        if isinstance(coder, TwoSided) and scheme.side == "update":
            assert coder.decay == scheme.decay
