"""Footprints: of this rank among real ones, or of all ranks simulated in this process."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from trainingkit.bench.exchange.footprint import Footprint, Gradients, PeakRam, build, commit, layouts
from trainingkit.bench.exchange.spec import Task
from trainingkit.cluster.islands import Islands
from trainingkit.codec import Codec
from trainingkit.exchange import EXCHANGES, pick_exchange
from trainingkit.exchange.lane import Lane
from trainingkit.exchange.memory import drive, memory_lanes


def real_footprint(task: Task, group: dist.ProcessGroup) -> Footprint:
    """Of this rank; all ranks of the group call it."""
    exchange, codec = pick_exchange(task.ranks), Codec(task.codec)
    codec.warm()
    lanes = [Lane(_like(group)) for _ in EXCHANGES.get(exchange).groups(Islands.flat(task.ranks))]
    cut = layouts(exchange, lanes, codec, task.buckets)
    gradients = Gradients(task.buckets, [each.padded for each in cut], seed=dist.get_rank(group))
    gradients.fill()
    ram = PeakRam()
    rounds = build(exchange, lanes, codec, cut, gradients)
    for _ in range(task.steps):
        for each in rounds:
            for stage in each.stages:
                stage()
        commit(rounds)
    return Footprint(_sent(lanes) // task.steps, ram.grown)


def simulated_footprint(task: Task) -> Footprint:
    """The mean over all ranks, which this process drives one after the other."""
    exchange, codec = pick_exchange(task.ranks), Codec(task.codec)
    codec.warm()
    every = memory_lanes(exchange, Islands.flat(task.ranks))
    cut = layouts(exchange, every[0], codec, task.buckets)
    padded = [each.padded for each in cut]
    gradients = [Gradients(task.buckets, padded, seed=rank) for rank in range(task.ranks)]
    for each in gradients:
        each.fill()
    ram = PeakRam()
    ranks = [build(exchange, lanes, codec, cut, own) for lanes, own in zip(every, gradients, strict=True)]
    for _ in range(task.steps):
        for bucket in zip(*ranks, strict=True):
            drive(bucket)
        for rounds in ranks:
            commit(rounds)
    sent = sum(_sent(lanes) for lanes in every)
    return Footprint(sent // (task.steps * task.ranks), ram.grown // task.ranks)


def _sent(lanes: Sequence[Lane]) -> int:
    return sum(lane.sent_bytes for lane in lanes)


def _like(group: dist.ProcessGroup) -> dist.ProcessGroup:
    made = dist.new_group(dist.get_process_group_ranks(group), backend="gloo")
    assert isinstance(made, dist.ProcessGroup)
    return made
