"""`trainingkit advise`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from trainingkit.bench.advise.facts import Facts
    from trainingkit.cli.advise_asked import Asked
    from trainingkit.trainer.recipe import Recipe


def advise(
    recipe: str | None = None,
    *,
    workers: int | None = None,
    ranks: int | None = None,
    link: str | None = None,
    delay: str = "0ms",
    lab: int | None = None,
    params: float | None = None,
    step: str | None = None,
    backward_share: float = 2 / 3,
    time_codecs: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", consume_multiple=False)] = None,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
) -> int:
    """Say before training what each way to send gradients would cost and save here, and which one to take.

    A recipe is measured: some steps without an exchange, the codecs on its gradients, the link between the ranks; about
    half a minute. Under torchrun or srun the same command joins that job, and rank 0 prints. Or give numbers.

    Examples:
      trainingkit advise
      trainingkit advise my.toml --workers 2 --link 25mbit --delay 20ms --ranks 4
      trainingkit advise --params 7e9 --step 2.5s --link 1gbit --ranks 8
      trainingkit advise --lab 4 --link 100mbit
      torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m trainingkit advise

    rho, which it prints, is the time that plain fp32 gradients need on the wire over the time of a step without them.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe. Default: "default".
    workers
        Worker processes on this host that measure. Default: what the recipe says.
    ranks
        Of the job that is asked about, where the link is given as numbers. Default: those that measure.
    link
        Rate of each host's link, for example "25mbit". It is not measured then, but in a lab, which has such links.
    delay
        One-way delay between two hosts.
    lab
        Measure in so many hosts of a network that does not exist (see `trainingkit netlab`).
    params
        Parameters of the model, for example 7e9; nothing is measured then. Needs --step, --link and --ranks.
    step
        Time of one step without any exchange, for example 2.5s.
    backward_share
        With --params: the part of a step in which gradients become ready.
    time_codecs
        With --params: time the codecs on this processor, which computes, too. Else they are taken for free.
    set_
        Override a setting of the recipe, as section.key=value. May be repeated.
    json_
        Where to write the advice as JSON.
    """
    from trainingkit.cli.advise_asked import Asked

    asked = Asked(recipe, workers, ranks, link, delay, lab, params, step, backward_share, time_codecs)
    asked.check()
    if params is not None:
        from trainingkit.bench.advise.numbers import facts_of

        return _say(facts_of(asked.numbers()), None, json_)
    from trainingkit.trainer.recipe import load_recipe

    overrides = [*(set_ or []), *([f"workers={workers}"] if workers is not None else [])]
    loaded = load_recipe(recipe or "default", overrides)
    facts = _measured(loaded, asked)
    return 0 if facts is None else _say(facts, loaded, json_)


def _measured(recipe: Recipe, asked: Asked) -> Facts | None:
    """The facts; None on ranks of somebody else's launch that do not print."""
    from trainingkit.bench.advise import run
    from trainingkit.bench.advise.rank import Wish, measure_recipe
    from trainingkit.cli.bench_progress import progress
    from trainingkit.cluster.place import find_place

    place = find_place()
    if asked.lab is None:
        asked.check_ranks(recipe.workers if place.alone else place.world_size)
    with progress() as show:
        if asked.lab is not None:
            return run.in_a_lab(recipe, Wish(), asked.lab_spec(), show=show)
        wish = Wish(asked.ranks, asked.stated_link())
        if place.alone:
            return run.on_this_host(recipe, wish, workers=recipe.workers, show=show)
        from trainingkit.bench.network.run import Glance

        def tell(part: str, done: float) -> None:
            if place.rank == 0:
                show(Glance(part, "", done, None))

        facts = measure_recipe(recipe, place, wish, tell)
    return facts if place.rank == 0 else None


def _say(facts: Facts, recipe: Recipe | None, json: Path | None) -> int:
    from trainingkit.cli.advise_print import print_advice, write_advice
    from trainingkit.sync.auto.advice import advise as advice_of
    from trainingkit.sync.auto.controller import ASKED_WORTH

    limits = {}
    if recipe is not None:
        section = recipe.sync
        limits = {"max_ratio": section.max_ratio, "min_density": section.min_density}
        limits |= {} if section.max_every is None else {"apart_worth": ASKED_WORTH}
    found = advice_of(facts.situation, **limits)
    print_advice(found, facts.notes)
    if json is not None:
        write_advice(found, facts.notes, json)
        sys.stdout.write(f"Written: {json}\n")
    return 0
