"""Where a run under "auto" begins: on the fewest bytes that its limits allow, and nowhere where they allow none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from squeezed_models import batch, loss_of, net, wrapped
from torch import nn

from ranks import Context, Pool
from trainingkit.core.errors import ConfigError
from trainingkit.sync.auto.ladder import LADDER, MAX_RATIO, MIN_DENSITY, PLAIN, START, start_within, within_limits
from trainingkit.sync.doors import _where_clocks_tell, squeeze
from trainingkit.sync.piloting import AutoSettings

INT8, BF16 = "all|int8(block=64)", "all|bf16"


@pytest.mark.parametrize(
    ("max_ratio", "codec"),
    [(1e9, START), (MAX_RATIO, START), (7.6, START), (7.4, INT8), (4.0, INT8), (2.0, BF16), (1.5, PLAIN), (1.0, PLAIN)],
)
def test_a_run_begins_on_the_fewest_bytes_within_its_limits(max_ratio: float, codec: str) -> None:
    for min_density in (MIN_DENSITY, 1.0):
        first = start_within(max_ratio=max_ratio, min_density=min_density)
        assert first.codec == codec and within_limits(first, max_ratio=max_ratio, min_density=min_density)
        worse = LADDER[LADDER.index(first) + 1 : 4]
        assert not any(within_limits(rung, max_ratio=max_ratio, min_density=min_density) for rung in worse)


@pytest.mark.parametrize(("name", "value"), [("max_ratio", 0.5), ("min_density", 1.5)])
def test_limits_that_allow_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        start_within(**{"max_ratio": 10.0, "min_density": 0.05, name: value})
    text = str(caught.value)
    assert f"field:     sync.{name}" in text and f"found:     {value}" in text and "Leave" in text


def begins(context: Context, max_ratio: float) -> dict[str, Any]:
    model = net()
    sync: Any = squeeze(wrapped(model), "auto", auto=AutoSettings(max_ratio=max_ratio))
    loss_of(sync.module, batch(0, context.rank)).backward()
    sync.commit()
    pilot = sync.pilot
    found = {"first": pilot.at(0).codec, "moves": [str(move.rung) for move in pilot.moves], "sent": sync.stats()}
    sync.close()
    return found


def test_the_first_exchange_is_within_the_limits(pool: Pool) -> None:
    four = pool.run(begins, 2, 4.0)
    ten = pool.run(begins, 2, 10.0)
    assert four[0]["first"] == four[1]["first"] == INT8 and four[0]["moves"][0] == INT8
    assert ten[0]["first"] == START
    assert four[0]["sent"]["sent_bytes"] > 1.5 * ten[0]["sent"]["sent_bytes"]
    assert four[0]["sent"]["fp32_bytes"] < 4.0 * four[0]["sent"]["sent_bytes"]


def refused(context: Context) -> str:
    try:
        squeeze(wrapped(net()), "auto", auto=AutoSettings(max_ratio=0.5))
    except ConfigError as error:
        return str(error)
    return ""


def test_the_door_refuses_them_on_all_ranks(pool: Pool) -> None:
    for text in pool.run(refused, 2):
        assert "The controller may use no rung at all" in text


def off_the_cpu(context: Context) -> list[str]:
    """Where clocks do not tell, "auto" stays where it would begin."""
    model = nn.Linear(2, 2, device=torch.device("meta"))
    asked = [AutoSettings(), AutoSettings(max_ratio=4.0), AutoSettings(max_ratio=1.0)]
    return [_where_clocks_tell("auto", model, context.group, auto, adaptive=False) for auto in asked]


def test_a_gpu_stays_within_the_limits(pool: Pool) -> None:
    assert pool.run(off_the_cpu, 2)[1] == [START, INT8, PLAIN]
