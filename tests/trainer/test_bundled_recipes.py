"""Every recipe of the repository can be read; those for slow links do what their comments say."""

from __future__ import annotations

import pytest

from trainingkit.sync.every import parse_every
from trainingkit.trainer.recipe import bundled_recipes, load_recipe


@pytest.mark.parametrize("name", sorted(bundled_recipes()))
def test_a_bundled_recipe_can_be_read_and_explains_itself(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    text = bundled_recipes()[name].read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert max(len(line) for line in text.splitlines()) <= 130


def test_a_run_over_a_slow_link_ends_with_a_whole_round():
    recipe = load_recipe("wan-10mbit")
    assert recipe.run.steps is not None
    assert recipe.run.steps % parse_every(recipe.sync.codec).every.steps == 0
    assert recipe.optimizer["kind"] == "muon"


def test_in_a_datacentre_little_is_lost_and_on_a_lan_the_link_decides():
    datacentre, lan = load_recipe("datacentre"), load_recipe("lan-100mbit")
    assert datacentre.sync.codec == lan.sync.codec == "auto"
    assert datacentre.sync.max_ratio == 2.0 < lan.sync.max_ratio
    assert datacentre.sync.timeout_s < lan.sync.timeout_s
