"""Lazy re-exports of a package: a name's module is imported when the name is first used."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, init_file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Build a package's `__getattr__` and `__all__` from the imports in its stub `__init__.pyi`.

    Type checkers and editors read the same stub.

    Args:
        package: Name of the package, `__name__` in its `__init__.py`.
        init_file: Its file, `__file__` in its `__init__.py`.

    Returns:
        The function `__getattr__` and the sorted list `__all__`.
    """
    stub = ast.parse(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get_attribute, sorted(modules)
