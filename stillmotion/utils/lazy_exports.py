"""Lazy re-exports of a package: a name's module is imported when the name is first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], list[str]]:
    """Build a package's `__getattr__` and `__all__`.

    Args:
        package: Name of the package, `__name__` in its `__init__.py`.
        modules: Names to export by submodule, relative to the package (`"builder"`, `"video.reader"`).

    Returns:
        The functions `__getattr__` and the sorted list `__all__`.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get_attribute, sorted(homes)
