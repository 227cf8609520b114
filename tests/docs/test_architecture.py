"""docs/explanation/architecture.md fits on a page, and every name in it exists."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
PACKAGE = ROOT / "stillmotion"
FILE_SUFFIXES = ("json", "jsonl", "safetensors", "pt", "html", "py")


def test_the_page_fits_on_a_page() -> None:
    assert len(PAGE.splitlines()) <= 75
    assert len(PAGE.split()) <= 900


def test_every_name_exists() -> None:
    missing = []
    for name in sorted(set(re.findall(r"`([a-z]\w*(?:\.\w+)+)`", PAGE))):
        *path, last = f"stillmotion.{name}".split(".")
        if last in FILE_SUFFIXES:
            continue
        home = importlib.import_module(".".join(path))
        is_module = (PACKAGE.joinpath(*path[1:], last)).is_dir() or PACKAGE.joinpath(*path[1:], f"{last}.py").is_file()
        if not (hasattr(home, last) or is_module):
            missing.append(name)
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    for name in sorted(set(re.findall(r"`([A-Z]\w+)`", PAGE))):
        if not re.search(rf"^class {name}\b", source, re.M):
            missing.append(name)
    assert not missing


def test_every_package_has_its_row() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(re.findall(r"`(\w+)/`", PAGE))
