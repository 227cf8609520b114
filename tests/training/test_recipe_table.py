"""The table of each verb: names, what they are, and where they are from."""

import json
import re

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.recipe_table import Recipe, RecipeTable, cite_tables
from stillmotion.training.run_dir import load_config
from stillmotion.training.tasks import RECIPES, RUN_CONFIGS
from stillmotion.utils.typed_config import to_dict

verbs = pytest.mark.parametrize("verb", RECIPES)


def test_every_training_verb_has_recipes():
    assert set(RECIPES) == set(RUN_CONFIGS)
    assert all(verb == recipes.verb for verb, recipes in RECIPES.items())


@verbs
def test_every_row_builds_its_verbs_configuration_under_its_own_name(verb, tmp_path):
    for name in RECIPES[verb].names():
        config = RECIPES[verb].get(name)
        assert type(config) is RUN_CONFIGS[verb]
        assert config.recipe == name
        (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
        assert load_config(tmp_path, RUN_CONFIGS[verb]) == config


@verbs
def test_every_row_says_what_it_is_in_a_short_line(verb):
    for row in RECIPES[verb].recipes.values():
        assert 0 < len(row.description) <= 70
        assert re.fullmatch(r"|[\w -]+, (Table \d+b?|Tables [\d, ]+ and \d+)", row.citation)


@verbs
def test_a_debug_twin_names_a_row_of_its_own_table(verb):
    twins = {
        name: row.description
        for name, row in RECIPES[verb].recipes.items()
        if row.description.startswith("debug twin of ")
    }
    for about in twins.values():
        assert about.removeprefix("debug twin of ") in RECIPES[verb].names()
    assert all(name.startswith("debug") for name in twins)


@verbs
def test_an_unknown_name_is_answered_with_a_near_one_or_the_list(verb):
    name = RECIPES[verb].names()[0]
    with pytest.raises(StillmotionError, match=rf"^{verb} has no recipe '{name}x'; did you mean {name}"):
        RECIPES[verb].get(f"{name}x")
    with pytest.raises(
        StillmotionError, match=rf"^{verb} has no recipe ''; `stillmotion {verb} --list-recipes` names all$"
    ):
        RECIPES[verb].get("")


def test_lines_are_aligned_and_end_with_the_source():
    rows = {"a": Recipe(PretrainConfig, "one thing", "Paper, Table 1"), "long": Recipe(PretrainConfig, "another")}
    assert RecipeTable("pretrain", rows).format_list() == ["a     one thing (Paper, Table 1)", "long  another"]


def test_a_twin_is_shrunk_when_it_is_built():
    twin = Recipe(lambda: PretrainConfig(recipe="row"), "a row", "Paper, Table 1").debug_variant(
        "k400-row", lambda config: config
    )
    assert (twin.build().recipe, twin.description, twin.citation) == ("row", "debug twin of k400-row", "")


@pytest.mark.parametrize(
    ("tables", "words"),
    [((), ""), ((5,), "P, Table 5"), ((3, 5), "P, Tables 3 and 5"), ((2, 3, 5), "P, Tables 2, 3 and 5")],
)
def test_sources_are_cited_as_one_writes_them(tables, words):
    assert cite_tables("P", *tables) == words
