"""The recipe table of each verb: names, descriptions and sources."""

import json
import re

import pytest

from stillmotion.errors import StillmotionError
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.recipe_table import Recipe, RecipeTable, cite_tables
from stillmotion.training.run_dir import load_config
from stillmotion.training.tasks import TASKS, config_class, get_recipe, list_recipes, recipe_table
from stillmotion.utils.typed_config import to_dict

verbs = pytest.mark.parametrize("verb", TASKS)


@verbs
def test_every_cell_of_a_verb_exists(verb):
    task = TASKS[verb]
    assert all(task.load(cell) is not None for cell in ("config", "recipes", "run", "plan", "page", "encoder"))
    assert config_class(verb).verb == recipe_table(verb).verb == verb


@verbs
@pytest.mark.parametrize("debug", [False, True])
def test_every_recipe_builds_its_verbs_configuration_under_its_own_name(verb, debug, tmp_path):
    for name in list_recipes(verb):
        config = get_recipe(name, verb=verb, debug=debug)
        assert type(config) is config_class(verb)
        assert config.recipe == "debug:" * debug + name
        assert get_recipe(config.recipe, verb=verb) == config
        (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
        assert load_config(tmp_path, config_class(verb)) == config


@verbs
def test_every_recipe_has_a_short_description(verb):
    for recipe in recipe_table(verb).recipes.values():
        assert 0 < len(recipe.description) <= 85
        assert re.fullmatch(r"|[\w -]+, (Table \d+b?|Tables [\d, ]+ and \d+)", recipe.citation)


@verbs
def test_an_unknown_name_is_answered_with_a_near_one_or_the_list(verb):
    name = list_recipes(verb)[0]
    with pytest.raises(StillmotionError, match=rf"^{verb} has no recipe '{name}x'; did you mean {name}"):
        get_recipe(f"{name}x", verb=verb)
    with pytest.raises(StillmotionError, match=rf"^{verb} has no recipe ''; `stillmotion {verb} --list-recipes`"):
        get_recipe("", verb=verb)


def test_lines_are_aligned_and_end_with_the_citation():
    rows = {"a": Recipe(PretrainConfig, "one thing", "Paper, Table 1"), "long": Recipe(PretrainConfig, "another")}
    table = RecipeTable("pretrain", rows, lambda config: config)
    assert table.format_list() == ["a     one thing (Paper, Table 1)", "long  another"]


@pytest.mark.parametrize(
    ("tables", "words"),
    [((), ""), ((5,), "P, Table 5"), ((3, 5), "P, Tables 3 and 5"), ((2, 3, 5), "P, Tables 2, 3 and 5")],
)
def test_citations_are_written_as_in_a_text(tables, words):
    assert cite_tables("P", *tables) == words
