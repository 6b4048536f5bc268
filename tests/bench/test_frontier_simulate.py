"""Simulated workers: exact ones are plain training; bits are what was sent; nothing that was not said is lost."""

from __future__ import annotations

import pytest
import torch
from frontier_small import SmallJob, SmallTask
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trainingkit.bench.frontier.coder import Agreed, Exact, mean_of
from trainingkit.bench.frontier.coders import SIGN, FewLevels, Integers, Normalised, TwoSided
from trainingkit.bench.frontier.coders.form import as_bf16
from trainingkit.bench.frontier.optimizing import Optimizing, make_optimizing
from trainingkit.bench.frontier.residual import as_int8, narrowed
from trainingkit.bench.frontier.scheme import Scheme
from trainingkit.bench.frontier.simulate import Outcome, simulate, trained
from trainingkit.bench.frontier.wire import Wire
from trainingkit.optim import OPTIMIZERS, SCHEDULES
from trainingkit.sync.exempt import squeezed_names

DENSE = Scheme("dense", "dense", "gradient", Exact)
CARRIED = {"2.weight"}
SHAPES = {"2.weight": torch.Size([64, 64]), "2.bias": torch.Size([64])}


class Largest:
    """Says the largest value of each row exactly, for one bit a value."""

    def bits(self, shape: tuple[int, ...]) -> float:
        return float(torch.Size(shape).numel())

    def agree(self, ys: list[Tensor], name: str, step: int) -> Agreed:
        said = []
        for y in ys:
            places = y.abs().argmax(dim=1, keepdim=True)
            said.append(torch.zeros_like(y).scatter(1, places, y.gather(1, places)))
        return Agreed(mean_of(said), said)


def run(scheme: Scheme, *, workers: int = 4, **more) -> Outcome:
    task = SmallTask(**more)
    return simulate(task, SmallJob(task), scheme, seed=0, workers=workers)


def plain_training(task: SmallTask, workers: int) -> nn.Module:
    """An ordinary loop whose batch is that of all workers."""
    job = SmallJob(task)
    model = job.build(0)
    optimizer = OPTIMIZERS.get("adamw")(lr=task.lr, weight_decay=task.weight_decay, beta2=task.beta2).build(model)
    schedule = SCHEDULES.get("cosine")(warmup_steps=task.warmup_steps, final=0.0)
    for step in range(task.steps):
        batches = [job.batch(step * workers + worker, 0) for worker in range(workers)]
        for group in optimizer.param_groups:
            group["lr"] = task.lr * schedule.factor(step, task.steps)
        optimizer.zero_grad()
        job.loss(model, {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), task.clip_norm)
        optimizer.step()
    return model


def test_one_exact_worker_is_plain_training_bit_for_bit():
    task = SmallTask()
    assert run(DENSE, workers=1).value == SmallJob(task).evaluate(plain_training(task, 1))


def test_exact_workers_are_training_with_the_large_batch():
    task = SmallTask(steps=20)
    expected = SmallJob(task).evaluate(plain_training(task, 4))
    assert run(DENSE, steps=20).value == pytest.approx(expected, rel=1e-4)


def test_one_exact_worker_that_sends_updates_is_plain_training_up_to_rounding():
    task = SmallTask(steps=20)
    scheme = Scheme("u", "u", "update", Exact, every=4)
    assert run(scheme, workers=1, steps=20).value == pytest.approx(
        SmallJob(task).evaluate(plain_training(task, 1)), rel=1e-4
    )


@pytest.mark.parametrize("side", ["gradient", "update"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_is_a_function_of_its_arguments_and_learns(side, optimizer):
    scheme = Scheme("s", "s", side, Largest, optimizer=optimizer)
    rates = {"lr": 2e-2, "muon_lr": 2e-2, "steps": 60}
    first, again = run(scheme, **rates), run(scheme, **rates)
    assert first == again
    assert sum(first.losses[-5:]) < 0.7 * sum(first.losses[:5])
    other = SmallTask(**rates)
    assert simulate(other, SmallJob(other), scheme, seed=1).value != first.value


def test_dense_costs_32_bits_and_others_what_their_coder_says_and_16_for_what_is_exempt():
    carried, every = 64 * 64, 8 * 64 + 64 + 64 * 64 + 64 + 64 + 1
    assert run(DENSE).bits == 32.0
    found = run(Scheme("l", "l", "gradient", Largest))
    assert found.carried_bits == 1.0
    assert (found.carried_parameters, found.parameters) == (carried, every)
    assert found.bits == pytest.approx((carried + 16 * (every - carried)) / every)


@pytest.mark.parametrize(("every", "exchanges"), [(1, 7), (2, 4), (5, 2), (100, 1)])
def test_updates_that_are_sent_now_and_then_cost_as_much_less(every, exchanges):
    found = run(Scheme("u", "u", "update", Largest, every=every), steps=7)
    assert found.carried_bits == pytest.approx(exchanges / 7)


def test_warm_up_uses_its_coders_for_their_share_of_the_run():
    found = run(Scheme("w", "w", "gradient", Largest, warmup=((0.25, Exact),)), steps=8)
    assert found.carried_bits == pytest.approx((2 * 32 + 6 * 1) / 8)


def test_a_run_that_is_not_finite_says_where_it_ended():
    found = run(DENSE, poison_at=4 * 3 + 1)
    assert found.value is None
    assert found.diverged_at == 3 + 1
    assert len(found.losses) == 3
    assert run(DENSE).diverged_at is None


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), rounds=st.integers(1, 4), decay=st.sampled_from([1.0, 0.5]))
def test_what_was_said_and_what_is_owed_are_what_came_in(seed, rounds, decay):
    """With decay 1, all that came in is either in the means or still owed; with less, the last residual is scaled."""
    draw = torch.Generator().manual_seed(seed)
    wire = Wire(SHAPES, CARRIED, Scheme("l", "l", "gradient", Largest, decay=decay), workers=2, steps=9)
    came = heard = torch.zeros(64, 64, dtype=torch.float64)
    for step in range(rounds):
        own = [{name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()} for _ in range(2)]
        owed_before = sum(named["2.weight"] for named in wire.residuals)
        came = sum(named["2.weight"].double() for named in own) + owed_before.double()
        heard = 2 * wire.agree(step, own)["2.weight"].double()
    owed = sum(named["2.weight"] for named in wire.residuals).double()
    assert torch.allclose(heard + owed / decay, came, atol=1e-5)


def test_momentum_is_corrected_and_cleared_where_something_was_said():
    """Deep Gradient Compression, algorithm 1: u = m u + g; v += u; what is sent is cleared in both."""
    wire = Wire(SHAPES, CARRIED, Scheme("d", "d", "gradient", Largest, momentum_correction=0.9), workers=1, steps=9)
    ones = {"2.weight": torch.ones(64, 64), "2.bias": torch.ones(64)}
    first = wire.agree(0, [ones])["2.weight"]
    assert torch.equal(first[:, 0], torch.ones(64))
    assert first[:, 1:].abs().max() == 0
    second = wire.agree(1, [ones])["2.weight"]
    assert torch.allclose(second[:, 1], torch.full((64,), 2.9))
    assert second[:, 0].abs().max() == 0


def test_exempt_tensors_travel_in_bf16_and_what_that_loses_comes_later():
    wire = Wire(SHAPES, CARRIED, Scheme("l", "l", "gradient", Largest), workers=1, steps=99)
    value = torch.full((64,), 1.001)
    own = [{"2.weight": torch.zeros(64, 64), "2.bias": value}]
    heard = [wire.agree(step, own)["2.bias"] for step in range(50)]
    assert torch.equal(heard[0], as_bf16(value))
    assert torch.allclose(sum(heard) / 50, value, rtol=2e-4)


@pytest.mark.parametrize("kind", [TwoSided, Normalised])
def test_nothing_is_lost_where_the_warm_up_changes_its_coder(kind):
    """All means + what the last owner owes + the mean of what workers owe == all that came in, over two switches."""
    made = []

    def maker(form):
        return lambda: made.append(kind(form)) or made[-1]

    stages = ((0.25, maker(Integers(2))), (0.5, maker(Integers(3))))
    wire = Wire(
        SHAPES, CARRIED, Scheme("w", "w", "gradient", maker(FewLevels(SIGN)), warmup=stages), workers=2, steps=8
    )
    draw = torch.Generator().manual_seed(0)
    came = heard = torch.zeros(64, 64)
    for step in range(8):
        own = [{name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()} for _ in range(2)]
        came = came + (own[0]["2.weight"] + own[1]["2.weight"]) / 2
        heard = heard + wire.agree(step, own)["2.weight"]
        assert len(made) == 3
    owed = made[2].owed["2.weight"].view(64, 64) + sum(named["2.weight"] for named in wire.residuals) / 2
    assert made[0].owed["2.weight"].abs().max() > 0.1
    assert torch.allclose(heard + owed, came, atol=1e-4)


def test_the_second_moment_goes_on_where_the_warm_up_ends():
    before, after = Normalised(Integers(4)), Normalised(FewLevels(SIGN))
    scheme = Scheme("w", "w", "gradient", lambda: after, warmup=((0.5, lambda: before),))
    wire = Wire(SHAPES, CARRIED, scheme, workers=1, steps=2)
    own = [{name: torch.ones(shape) for name, shape in SHAPES.items()}]
    wire.agree(0, own)
    learned = before.moment["2.weight"].clone()
    mean = wire.agree(1, own)["2.weight"].flatten()
    assert torch.equal(after.moment["2.weight"], learned.lerp(mean.square(), 1 - after.beta))


def test_decay_and_residual_format_are_for_carried_tensors_alone():
    scheme = Scheme("l", "l", "gradient", Largest, decay=0.5, residual="int8")
    wire = Wire(SHAPES, CARRIED, scheme, workers=1, steps=9)
    own = [{name: torch.linspace(0.1, 1.1, shape.numel()).view(shape) for name, shape in SHAPES.items()}]
    wire.agree(0, own)
    bias, weight = own[0]["2.bias"], own[0]["2.weight"]
    assert torch.equal(wire.residuals[0]["2.bias"], bias - as_bf16(bias))
    left = weight.scatter(1, weight.argmax(dim=1, keepdim=True), 0.0)
    assert torch.equal(wire.residuals[0]["2.weight"], as_int8(left * 0.5))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_with_momentum_correction_exempt_parameters_keep_the_optimizers_momentum(optimizer):
    """After g = 1 and then g = -1 Adam's mean is 0.1 - 0.01 = -0.01; without momentum it is -1."""
    task = SmallTask(warmup_steps=0, weight_decay=0.0)
    model = SmallJob(task).build(0)
    scheme = Scheme("d", "d", "gradient", Largest, optimizer=optimizer, momentum_correction=0.9)
    optimizing = make_optimizing(model, CARRIED, task, scheme)
    moved = {}
    for step, sign in enumerate((1.0, -1.0)):
        before = {name: p.detach().clone() for name, p in trained(model).items()}
        for p in trained(model).values():
            p.grad = torch.full_like(p, sign)
        optimizing.step(step)
        moved = {name: (p - before[name]).detach() for name, p in trained(model).items()}
    for name in moved.keys() - CARRIED:
        assert moved[name].abs().max() < 0.1 * task.lr, f"{name} has momentum"
    assert moved["2.weight"].min() > 0, "what is carried goes with the last gradient alone"


def test_residual_formats_round_as_they_say():
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(3, 50, generator=draw)
    assert narrowed(values, "fp32") is values
    assert torch.equal(narrowed(values, "bf16"), values.bfloat16().float())
    steps = values.flatten()[:64].abs().max() / 127
    assert (as_int8(values) - values).flatten()[:64].abs().max() <= steps / 2 * 1.001
    assert torch.equal(as_int8(torch.zeros(5)), torch.zeros(5))


def test_muon_steps_a_convolution_as_the_matrix_it_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 64, 3, bias=False), nn.Flatten(), nn.Linear(64, 2))
    matrix = nn.Parameter(model[0].weight.detach().flatten(1).clone())
    task = SmallTask(weight_decay=0.0)
    scheme = Scheme("m", "m", "gradient", Exact, optimizer="muon")
    optimizing: Optimizing = make_optimizing(model, squeezed_names(model), task, scheme)
    oracle = torch.optim.Muon([matrix], lr=task.muon_lr / task.warmup_steps, momentum=0.95, weight_decay=0.0)
    model[0].weight.grad = torch.randn(64, 8, 3, 3)
    matrix.grad = model[0].weight.grad.flatten(1).clone()
    for parameter in trained(model).values():
        parameter.grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
    before = model[0].weight.detach().clone()
    optimizing.step(0)
    oracle.step()
    assert not torch.equal(model[0].weight, before)
    assert torch.equal(model[0].weight.flatten(1), matrix)
