"""Texts of training apart: what they stand for, what is refused and with which advice, and how layers are dealt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainingkit.codec import message_bytes
from trainingkit.core.errors import ConfigError
from trainingkit.sync.every import parse_every, trains_apart
from trainingkit.sync.every.dealing import cut, deal, layer_of
from trainingkit.sync.every.presets import PRESETS
from trainingkit.trainer.recipe import load_kit_config


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("every(30)|topk(0.0156)|int4", "every(30)|topk(density=0.0156, chunk=4096)|int4(block=64)|elias_fano"),
        ("every( 1 )|all|int4", "every(1)|all|int4(block=64)"),
        ("every(steps=4, delay=1)|all|int4", "every(4, delay=1)|all|int4(block=64)"),
        ("every(10)|none", "every(10)|none"),
        ("every(30)", "every(30)|all|int4(block=64)"),
        ("every(3, embeddings=True, exchange=gather)", "every(3, embeddings=true, exchange=gather)|all|int4(block=64)"),
        (
            "every(30, outer_lr=0.7, outer_momentum=0.9, nesterov=true, decay=0.95)|none",
            "every(30, outer_lr=0.7, outer_momentum=0.9, nesterov=true, decay=0.95)|none",
        ),
    ],
)
def test_a_text_is_read_and_written(text: str, canonical: str) -> None:
    assert trains_apart(text)
    spec = parse_every(text)
    assert str(spec) == canonical
    assert parse_every(canonical) == spec
    assert load_kit_config({"sync": {"codec": text}}).sync.codec == canonical


def test_presets_are_texts() -> None:
    assert {"diloco", "sparseloco", "muloco-outer", "streaming-diloco"} <= set(PRESETS.names())
    for name in PRESETS.names():
        assert trains_apart(name)
        assert parse_every(str(parse_every(name))) == parse_every(name)
    sparse = parse_every("sparseloco")
    assert sparse.codec is not None
    n = 1 << 20
    assert message_bytes(sparse.codec, n) / sparse.every.steps < 4 * n / 4000, "a step's share of a message"


@pytest.mark.parametrize("text", ["all|int4", "topk(0.05)|int4", "none", "auto", "al|int4", "int3x"])
def test_texts_of_gradients_are_left_to_others(text: str) -> None:
    assert not trains_apart(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("evry(4)|all|int4", ["no way to synchronise called 'evry'", "Did you mean 'every'?"]),
        ("dilco", ["no way to synchronise called 'dilco'", "Did you mean 'diloco'?"]),
        ("every()|none", ["A setting is missing.", "field:     sync.codec.every.steps"]),
        ("every(0)|none", ["field:     sync.codec.every.steps", "greater than or equal to 1"]),
        ("every(4, delai=1)", ["no setting called 'sync.codec.every.delai'", "Did you mean 'delay'?"]),
        ("every(4, delay=1, tau=2)", ["either delayed to the next one or by a number of steps", "Remove one of them."]),
        ("every(4, tau=5)", ["must be applied before the next one starts", "at most 4"]),
        ("every(2, fragments=3)", ["more fragments than steps between two rounds", "found:     3"]),
        ("every(4, nesterov=true)", ["Nesterov looks ahead along the momentum", "outer_momentum above 0"]),
        ("every(4, exchange=gathr)", ["Did you mean 'gather'?", "sync.codec.every.exchange"]),
        ("every(4, decay=1.5)", ["field:     sync.codec.every.decay", "less than or equal to 1"]),
        ("every(4)|all|int5", ["no quantiser called 'int5'", "Did you mean 'int"]),
        ("every(4|none", ["cannot be read", "missing parenthesis"]),
        ("diloco|all|int4", ["The preset 'diloco' stands alone", "found:     'diloco|all|int4'", "every(500, "]),
        ("diloco(50)", ["The preset 'diloco' stands alone", "Write what it stands for and change that:"]),
        ("every(4)|all", ["not a codec we can read", "'all'"]),
    ],
)
def test_a_bad_text_is_refused_with_advice(text: str, told: list[str]) -> None:
    with pytest.raises(ConfigError) as alone:
        assert trains_apart(text, field="sync.codec")
        parse_every(text, field="sync.codec")
    with pytest.raises(ConfigError) as in_config:
        load_kit_config({"sync": {"codec": text}})
    for one in told:
        assert one in str(alone.value)
        assert one in str(in_config.value)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.3.mlp.up.weight", "model.layers.3"),
        ("lm_head.weight", "lm_head"),
        ("0.weight", "0"),
        ("scale", ""),
    ],
)
def test_the_layer_of_a_parameter(name: str, layer: str) -> None:
    assert layer_of(name) == layer


def test_layers_are_dealt_in_turn() -> None:
    names = ["embed.weight", *(f"layers.{i}.{part}" for i in range(4) for part in ("a", "b")), "head.weight"]
    assert deal(names, 3) == [
        ["embed.weight", "layers.2.a", "layers.2.b"],
        ["layers.0.a", "layers.0.b", "layers.3.a", "layers.3.b"],
        ["layers.1.a", "layers.1.b", "head.weight"],
    ]
    with pytest.raises(ConfigError, match="fewer layers than fragments"):
        deal(names, 7)


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 200))
@settings(deadline=None, max_examples=60)
def test_parcels_hold_each_parameter_once(sizes: list[int], parcel_bytes: int) -> None:
    named = {str(index): size for index, size in enumerate(sizes)}
    parcels = cut(list(named), named, parcel_bytes)
    assert [name for parcel in parcels for name in parcel] == list(named)
    for parcel in parcels:
        assert 4 * sum(named[name] for name in parcel[:-1]) < parcel_bytes
