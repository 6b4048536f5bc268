"""A section's errors: told once, also where a validator asked another part of the code; advice that fits who asked."""

from __future__ import annotations

import pytest
from pydantic import Field, field_validator

from trainingkit.codec import parse
from trainingkit.core.errors import ConfigError
from trainingkit.core.section import Section, check
from trainingkit.trainer.recipe import load_kit_config, load_recipe

CODECS = [
    ("int3x", "sync.codec", "Put '|' between its parts"),
    ("all|int5", "sync.codec", "Did you mean 'int"),
    ("al|int4", "sync.codec", "Did you mean 'all'?"),
    ("all|int4(block=sixty)", "sync.codec.int4.block", "Change it"),
    ("all|int4(blok=64)", "sync.codec.int4.blok", "Did you mean 'block'?"),
    ("all|int4(64", "sync.codec", "missing parenthesis"),
]


@pytest.mark.parametrize(("codec", "field", "advice"), CODECS, ids=[codec for codec, *_ in CODECS])
def test_a_codec_in_a_recipe_is_refused_in_one_message(codec: str, field: str, advice: str) -> None:
    for load in (
        lambda: load_recipe("default", [f"sync.codec={codec!r}"]),
        lambda: load_kit_config({"sync": {"codec": codec}}),
    ):
        with pytest.raises(ConfigError) as caught:
            load()
        text = str(caught.value)
        assert [text.count(f"  {label}:") for label in ("field", "found", "expected", "next step")] == [1, 1, 1, 1], (
            text
        )
        assert caught.value.field == field
        assert caught.value.next_step is not None and advice in caught.value.next_step
        with pytest.raises(ConfigError) as alone:
            parse(codec, field="sync.codec")
        assert str(alone.value) == text, "the codec's own message, as it is"


class Needy(Section):
    size: int = Field(description="how many")
    other: int = 0

    @field_validator("other")
    @classmethod
    def _other_is_even(cls, other: int) -> int:
        if other % 2:
            raise ValueError("an even number")
        return other


def test_options_are_advised_only_where_there_are_any() -> None:
    with pytest.raises(ConfigError, match="A setting is missing") as caught:
        check(Needy, {}, field="needy")
    assert "--set" not in str(caught.value)
    with pytest.raises(ConfigError, match="A setting is missing") as caught:
        check(Needy, {}, field="needy", options=True)
    assert caught.value.next_step == "Add it, for example with --set needy.size=..."
    with pytest.raises(ConfigError, match=r"cannot be used. \(1 more after this one\)") as caught:
        check(Needy, {"size": "x", "other": 3}, field="needy")
    assert (caught.value.field, caught.value.expected) == ("needy.size", "a valid integer")
    with pytest.raises(ConfigError) as caught:
        check(Needy, {"size": 1, "other": 3}, field="needy")
    assert caught.value.expected == "an even number", "a validator's plain ValueError is told as an expectation"


def test_a_script_is_not_told_of_options(tmp_path) -> None:
    """What `attach` and `compress` refuse names arguments and settings, never options of the command line."""
    half = tmp_path / "half.toml"
    half.write_text("[run\n")
    refused = [
        lambda: load_kit_config(tmp_path / "none.toml"),
        lambda: load_kit_config(half),
        lambda: load_kit_config({"run": {"stepz": 3}}),
        lambda: load_kit_config({"run": {"steps": 0}}),
        lambda: load_kit_config({"model": {}}),
        lambda: parse("|int4"),
        lambda: parse("topk(density=0)|int4"),
        lambda: parse("all|int9"),
    ]
    for refuse in refused:
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert "--" not in str(caught.value) and "trainingkit train" not in str(caught.value), str(caught.value)
        assert caught.value.next_step
    with pytest.raises(ConfigError) as caught:
        load_kit_config(tmp_path / "none.toml")
    assert caught.value.field == "config" and "a mapping" in str(caught.value.next_step)
