"""docs/reference/recipes.md states the settings that the recipes have."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from stillmotion.training.pretrain.recipes_bod_vcl import BOD_VCL_RECIPES
from stillmotion.training.pretrain.recipes_vididi import VIDIDI_RECIPES
from stillmotion.training.tasks import get_recipe, recipe_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recipes.md"
SECTIONS = {
    "Pre-training: BOD-VCL": ("pretrain", list(BOD_VCL_RECIPES)),
    "Pre-training: ViDiDi": ("pretrain", list(VIDIDI_RECIPES)),
    "Fine-tuning": ("finetune", list(recipe_table("finetune").names())),
    "Detection": ("detect", list(recipe_table("detect").names())),
    "Transfer": ("transfer", list(recipe_table("transfer").names())),
}
CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    section: str
    patterns: str
    setting: str
    ours: str

    @property
    def names(self) -> list[str]:
        """Recipes that the row describes."""
        included, _, excluded = (CODE.findall(part) for part in self.patterns.partition(", not "))
        names = [name for name in SECTIONS[self.section][1] if any(fnmatch(name, pattern) for pattern in included)]
        return [name for name in names if not any(fnmatch(name, pattern) for pattern in excluded)]

    @property
    def values(self) -> dict[str, str]:
        return dict(text.split("=") for text in CODE.findall(self.ours))


def rows() -> list[Row]:
    result, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line.startswith("| `") and section in SECTIONS:
            patterns, setting, _, ours, _ = (cell.strip() for cell in line.strip("|").split("|"))
            result.append(Row(section, patterns, setting, ours))
    return result


def parse(text: str, example: Any) -> Any:
    """Convert a value of the page to the type of the recipe's value."""
    if isinstance(example, tuple):
        return tuple(float(part) for part in text.split(","))
    return text if isinstance(example, str) else float(text)


def test_recipes_have_the_settings_of_their_rows() -> None:
    differing = []
    for row in rows():
        if not row.names or not row.values:
            differing.append(f"{row.section}: {row.setting} has no recipes or no values")
        for name in row.names:
            config = get_recipe(name, verb=SECTIONS[row.section][0])
            for field, text in row.values.items():
                value: Any = config
                for part in field.split("."):
                    value = getattr(value, part)
                if value != parse(text, value):
                    differing.append(f"{name}: {field} is {value}, the page says {text}")
    assert not differing, "\n".join(differing)


def test_every_row_of_table_2_is_documented() -> None:
    documented: dict[str, set[str]] = {name: set() for name in BOD_VCL_RECIPES}
    for row in rows():
        if row.section == "Pre-training: BOD-VCL":
            for name in row.names:
                documented[name] |= set(row.values)
    model = {"method.model.embedding_dim", "method.model.projector_layers"}
    always = model | {"optim.name", "optim.lr", "optim.batch_size", "optim.epochs", "data.fps"}
    for name in (f"k400-{bod}{method}" for method in ("simclr", "byol", "moco", "swav") for bod in ("", "bod-")):
        assert always <= documented[name], name
        assert "byol" in name or "method.objective.temperature" in documented[name]
        assert "moco" not in name or {"method.objective.queue_size", "method.objective.momentum"} <= documented[name]
        assert "bod-" not in name or {"solver.name", "method.static_dynamic.radius"} <= documented[name]
