"""From settings to the pilot: a fixed codec with its warm-up, the controller, or moves that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from trainingkit.codec import Spec, parse
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.agree import Agreement
from trainingkit.sync.auto.controller import APART_WORTH, ASKED_WORTH, Controller
from trainingkit.sync.auto.flying import Auto, Replay
from trainingkit.sync.auto.ladder import (
    LADDER,
    MAX_EVERY,
    MAX_RATIO,
    MIN_DENSITY,
    PLAIN,
    Rung,
    whole_ladder,
)
from trainingkit.sync.auto.moves import read_moves
from trainingkit.sync.auto.seen import Seen
from trainingkit.sync.every import parse_every
from trainingkit.sync.pilot import Fixed, Pilot
from trainingkit.sync.section import AUTO_CODEC

WARMUP_CODEC = "all|int8(block=64)"
TOPK_WARMUP_STEPS = 40
COARSE_WARMUP_STEPS = 10
"""Of a normalised codec of few bits: its first second moments are of few gradients, and later ones follow from them."""
COARSE_BITS = 3


@dataclass(frozen=True)
class AutoSettings:
    """What "auto" may do.

    Args:
        max_ratio, min_density: limits until the run has proved stable.
        max_every: steps that ranks may at most train apart; None: `MAX_EVERY`, and only where it pays well.
        replay: `decisions.jsonl` of a run whose moves are repeated.
        shared: which part of the codec's seconds computing loses: 1 where both use the same cores.
    """

    max_ratio: float = MAX_RATIO
    min_density: float = MIN_DENSITY
    max_every: int | None = None
    replay: Path | None = None
    shared: float = 1.0


def make_pilot(
    codec: str,
    *,
    warmup_steps: int | None,
    normalise: bool,
    auto: AutoSettings,
    group: Callable[[], dist.ProcessGroup],
    prepare: Callable[[Rung], None],
    apart: bool = False,
) -> Pilot:
    """The pilot that a codec's text asks for.

    Args:
        apart: whether rungs may be chosen on which ranks train apart.
        group: makes a Gloo group for the controller alone.
        prepare: makes ready what a rung needs, on all ranks.

    Raises:
        ConfigError: the text or the moves cannot be read, or are of codecs that this version does not have; or the
            limits leave no rung.
    """
    if codec != AUTO_CODEC:
        spec = parse(codec)
        steps = default_warmup(spec, normalise=normalise) if warmup_steps is None else warmup_steps
        return Fixed(Rung(codec, normalise), Rung(WARMUP_CODEC, normalise), steps)
    if auto.replay is not None:
        moves = read_moves(auto.replay)
        rungs = tuple(dict.fromkeys((*LADDER, *(move.rung for move in moves))))
        for rung in rungs:
            _check_known(rung, apart=apart)
        return Replay(moves[0].rung, moves, rungs, prepare)
    return Auto(_controller(auto, apart=apart), Agreement(group(), Seen.width()), prepare)


def _controller(auto: AutoSettings, *, apart: bool) -> Controller:
    """On the rung where a run within these limits begins. Raises ConfigError where there is none."""
    return Controller(
        whole_ladder((auto.max_every or MAX_EVERY) if apart else 1),
        shared=auto.shared,
        max_ratio=auto.max_ratio,
        min_density=auto.min_density,
        apart_worth=APART_WORTH if auto.max_every is None else ASKED_WORTH,
        try_apart=auto.max_every is not None,
    )


def _check_known(rung: Rung, *, apart: bool) -> None:
    """Raise ConfigError where this version, or this script, cannot travel on a rung of the moves to be repeated."""
    if rung.apart and not apart:
        raise ConfigError(
            "In these moves ranks train apart, which needs the optimizer and a loop that commits its steps.",
            field="sync.replay",
            found=str(rung),
            expected="moves between codecs of gradients",
            next_step="Repeat them with trainingkit.attach or a recipe, or record others with sync.max_every = 1.",
        )
    if rung.apart:
        parse_every(str(rung), field="sync.replay")
    elif rung.codec != PLAIN:
        parse(rung.codec, field="sync.replay")


def default_warmup(spec: Spec, *, normalise: bool) -> int:
    """Steps in 8 bits at the start, where nobody says how many."""
    if spec.selection.indexed:
        return TOPK_WARMUP_STEPS
    return COARSE_WARMUP_STEPS if normalise and spec.quantiser.bits <= COARSE_BITS else 0


def refuse_extras(codec: str, warmup_steps: int | None, *, normalise: bool, auto: AutoSettings | None) -> None:
    """Raise ConfigError where settings of a fixed codec come with "auto", or moves to be repeated come without it."""
    if codec != AUTO_CODEC and auto is not None and auto.replay is not None:
        raise ConfigError(
            "Moves are repeated by the controller's codec only.",
            field="sync.replay",
            found=f"{auto.replay}, with codec {codec!r}",
            expected=f"codec {AUTO_CODEC!r}",
            next_step="Leave sync.replay out, or set sync.codec = 'auto'.",
        )
    given = [name for name, on in (("warmup_steps", warmup_steps is not None), ("normalise", normalise)) if on]
    if codec != AUTO_CODEC or not given:
        return
    raise ConfigError(
        "The controller chooses this by itself.",
        field=f"sync.{given[0]}",
        found=f"set, with codec {AUTO_CODEC!r}",
        expected="only with a codec that is fixed",
        next_step="Leave it out, or name a codec, for example 'all|int4(block=64)'.",
    )
