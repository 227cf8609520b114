"""The table of each verb: names, what they are, and where they are from."""

import json
import re

import pytest

from stillmotion.config import CONFIGS, Config, read_config, to_json
from stillmotion.errors import StillmotionError
from stillmotion.recipes import RECIPES
from stillmotion.recipes.table import Recipe, Recipes, cited

verbs = pytest.mark.parametrize("verb", RECIPES)


def test_every_training_verb_has_recipes():
    assert set(RECIPES) == set(CONFIGS)
    assert all(verb == recipes.verb for verb, recipes in RECIPES.items())


@verbs
def test_every_row_builds_its_verbs_configuration_under_its_own_name(verb, tmp_path):
    for name in RECIPES[verb].names():
        config = RECIPES[verb].named(name)
        assert type(config) is CONFIGS[verb]
        assert config.recipe == name
        (tmp_path / "config.json").write_text(json.dumps(to_json(config)))
        assert read_config(tmp_path, CONFIGS[verb]) == config


@verbs
def test_every_row_says_what_it_is_in_a_short_line(verb):
    for row in RECIPES[verb].rows.values():
        assert 0 < len(row.about) <= 70
        assert re.fullmatch(r"|[\w -]+, (Table \d+b?|Tables [\d, ]+ and \d+)", row.source)


@verbs
def test_a_debug_twin_names_a_row_of_its_own_table(verb):
    twins = {name: row.about for name, row in RECIPES[verb].rows.items() if row.about.startswith("debug twin of ")}
    for about in twins.values():
        assert about.removeprefix("debug twin of ") in RECIPES[verb].names()
    assert all(name.startswith("debug") for name in twins)


@verbs
def test_an_unknown_name_is_answered_with_a_near_one_or_the_list(verb):
    name = RECIPES[verb].names()[0]
    with pytest.raises(StillmotionError, match=rf"^{verb} has no recipe '{name}x'; did you mean {name}"):
        RECIPES[verb].named(f"{name}x")
    with pytest.raises(StillmotionError, match=rf"^{verb} has no recipe ''; `stillmotion {verb} --list` names all$"):
        RECIPES[verb].named("")


def test_lines_are_aligned_and_end_with_the_source():
    rows = {"a": Recipe(Config, "one thing", "Paper, Table 1"), "long": Recipe(Config, "another")}
    assert Recipes("pretrain", rows).lines() == ["a     one thing (Paper, Table 1)", "long  another"]


def test_a_twin_is_shrunk_when_it_is_built():
    twin = Recipe(lambda: Config(recipe="row"), "a row", "Paper, Table 1").twin("k400-row", lambda config: config)
    assert (twin.build().recipe, twin.about, twin.source) == ("row", "debug twin of k400-row", "")


@pytest.mark.parametrize(
    ("tables", "words"),
    [((), ""), ((5,), "P, Table 5"), ((3, 5), "P, Tables 3 and 5"), ((2, 3, 5), "P, Tables 2, 3 and 5")],
)
def test_sources_are_cited_as_one_writes_them(tables, words):
    assert cited("P", *tables) == words
