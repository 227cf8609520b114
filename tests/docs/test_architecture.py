"""docs/architecture.md fits on a page, and every name in it exists."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`([a-z]\w*(?:\.\w+)+)`", PAGE)))
PACKAGE = Path(importlib.import_module("stillmotion").__file__ or "").parent
FILES = ("json", "jsonl", "safetensors", "pt", "html", "py")


def test_the_page_fits_on_a_page() -> None:
    assert len(PAGE.splitlines()) <= 75
    assert len(PAGE.split()) <= 900


@pytest.mark.parametrize("name", [name for name in NAMES if name.split(".")[-1] not in FILES])
def test_every_dotted_name_exists(name: str) -> None:
    *path, last = f"stillmotion.{name}".split(".")
    assert hasattr(importlib.import_module(".".join(path)), last)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+|\w+_)`", PAGE))))
def test_every_plain_name_is_defined_somewhere(name: str) -> None:
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    assert re.search(rf"^(class|def) {name}\b", source, re.M)


@pytest.mark.parametrize("layer", sorted(set(re.findall(r"`(\w+)/`", PAGE)) - {"tensorboard"}))
def test_every_layer_is_a_package(layer: str) -> None:
    assert importlib.import_module(f"stillmotion.{layer}").__path__


def test_every_package_has_its_row() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(re.findall(r"`(\w+)/`", PAGE)) - {"tensorboard"}
