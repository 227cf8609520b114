"""What the package imports is declared in pyproject.toml."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported_packages(folder: Path) -> dict[str, str]:
    """Return the top-level packages that modules below a folder import, each with one importing line."""
    locations: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                locations.setdefault(name.partition(".")[0], f"{path.relative_to(ROOT)}:{node.lineno}")
    return locations


def test_imports_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(line for lines in extras for line in lines)]
    names = {re.split(r"[\[<>=! ]", line)[0].lower() for line in declared}
    distributions = packages_distributions()
    missing = {
        package: location
        for package, location in imported_packages(ROOT / "stillmotion").items()
        if package not in sys.stdlib_module_names
        and package != "stillmotion"
        and not {name.lower() for name in distributions.get(package, [package])} & names
    }
    assert not missing
