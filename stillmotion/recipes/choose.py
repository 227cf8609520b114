"""A configuration by its name, or the names it may have been meant for."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from stillmotion.errors import StillmotionError

Builder = TypeVar("Builder")


def chosen(recipes: Mapping[str, Builder], name: str, *, verb: str) -> Builder:
    """What stands under this name among a verb's recipes."""
    if name not in recipes:
        close = difflib.get_close_matches(name, recipes, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"`stillmotion {verb} --list` names all"
        raise StillmotionError(f"{verb} has no recipe {name!r}; {hint}")
    return recipes[name]
