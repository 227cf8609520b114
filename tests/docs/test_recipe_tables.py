"""docs/recipes.md says what the recipes take."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stillmotion.training.pretrain.recipes_bod_vcl import BOD_VCL_RECIPES
from stillmotion.training.pretrain.recipes_vididi import VIDIDI_RECIPES
from stillmotion.training.tasks import get_recipe, list_recipes

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
OF_SECTION = {
    "Pre-training: BOD-VCL": ("pretrain", list(BOD_VCL_RECIPES)),
    "Pre-training: ViDiDi": ("pretrain", list(VIDIDI_RECIPES)),
    "Fine-tuning": ("finetune", list(list_recipes("finetune"))),
    "Detection": ("detect", list(list_recipes("detect"))),
    "Transfer": ("transfer", list(list_recipes("transfer"))),
}
CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    section: str
    asked: str
    setting: str
    ours: str

    @property
    def names(self) -> list[str]:
        """The recipes that it is about."""
        some, _, others = self.asked.partition(", not ")
        wanted, left_out = CODE.findall(some), CODE.findall(others)
        every = OF_SECTION[self.section][1]
        found = [name for name in every if any(fnmatch(name, pattern) for pattern in wanted)]
        return [name for name in found if not any(fnmatch(name, pattern) for pattern in left_out)]

    @property
    def values(self) -> dict[str, str]:
        return dict(text.split("=") for text in CODE.findall(self.ours))


def rows() -> list[Row]:
    found, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line.startswith("| `") and section in OF_SECTION:
            asked, setting, _, ours, _ = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(section, asked, setting, ours))
    return found


def taken(config: Any, place: str) -> Any:
    for name in place.split("."):
        config = getattr(config, name)
    return config


def read(text: str, like: Any) -> Any:
    """A value as it is written, of the type that the recipe has."""
    if isinstance(like, tuple):
        return tuple(float(part) for part in text.split(","))
    return text if isinstance(like, str) else float(text)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.section}: {row.setting}")
def test_every_recipe_of_a_row_takes_what_it_says(row: Row) -> None:
    assert row.names
    assert row.values
    for name in row.names:
        config = get_recipe(name, verb=OF_SECTION[row.section][0])
        for place, text in row.values.items():
            value = taken(config, place)
            assert value == read(text, value), (name, place)


def test_every_row_of_table_2_is_documented_in_what_the_text_says_of_it() -> None:
    said: dict[str, set[str]] = {name: set() for name in BOD_VCL_RECIPES}
    for row in rows():
        if row.section == "Pre-training: BOD-VCL":
            for name in row.names:
                said[name] |= set(row.values)
    always = {
        "method.model.embedding_dim",
        "method.model.projector_layers",
        "optim.name",
        "optim.lr",
        "optim.batch_size",
        "optim.epochs",
        "data.fps",
    }
    for name in (f"k400-{bod}{method}" for method in ("simclr", "byol", "moco", "swav") for bod in ("", "bod-")):
        assert always <= said[name], name
        assert "byol" in name or "method.objective.temperature" in said[name]
        assert "moco" not in name or {"method.objective.queue_size", "method.objective.momentum"} <= said[name]
        assert "bod-" not in name or {"solver.name", "method.static_dynamic.radius"} <= said[name]
