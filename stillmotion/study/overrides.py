"""Single fields of a configuration, named by their place in it and read as their own types."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

from stillmotion.config import RunConfig
from stillmotion.errors import StillmotionError
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.objectives import OBJECTIVES
from stillmotion.registry import suggestion

Settings = typing.TypeVar("Settings", bound=RunConfig)


def overridden(config: Settings, changes: Mapping[str, Any]) -> Settings:
    """The configuration with some fields changed, in the order given.

    changes: by place, such as "method.split.radius"; text is read as the field's type ("8,16,32" is a tuple, "moco"
        the objective of that name).
    """
    for place, value in changes.items():
        config = _changed(config, place.split("."), value, place)
    return config


def assignments(words: typing.Iterable[str]) -> dict[str, str]:
    """The changes that words such as "optim.epochs=2" ask for."""
    changes = {}
    for word in words:
        place, equals, value = word.partition("=")
        if not equals:
            raise StillmotionError(f"{word!r} sets nothing; write field=value, such as optim.epochs=2")
        changes[place] = value
    return changes


def _changed(tree: Any, names: list[str], value: Any, place: str) -> Any:
    name, *rest = names
    known = [f.name for f in fields(tree)]
    if name not in known:
        raise StillmotionError(f"there is no field {place!r} ({name!r} is unknown){suggestion(name, known)}")
    inner = getattr(tree, name)
    if rest and not is_dataclass(inner):
        raise StillmotionError(f"there is no field {place!r}: {name} is {inner!r} and has no fields")
    kind = typing.get_type_hints(type(tree))[name]
    return replace(tree, **{name: _changed(inner, rest, value, place) if rest else _read(kind, value, place)})


def _read(kind: Any, value: Any, place: str) -> Any:
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    for option in sorted(options, key=lambda o: o is not types.NoneType):
        try:
            return _as(option, value)
        except (ValueError, TypeError):
            continue
    raise StillmotionError(f"{place} cannot be {value!r}; expected {' or '.join(_words(o) for o in options)}")


def _as(kind: Any, value: Any) -> Any:
    """The value as this type; ValueError where it is none."""
    text = isinstance(value, str)
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)[[str(a) for a in typing.get_args(kind)].index(str(value))]
    if typing.get_origin(kind) is tuple:
        parts = [p for p in value.split(",") if p] if text else list(value)
        of = typing.get_args(kind)
        of = of[:1] * len(parts) if of[-1] is Ellipsis else of
        return tuple(_as(k, p) for k, p in zip(of, parts, strict=True))
    if kind is types.NoneType and value in (None, "none"):
        return None
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if kind is int and not isinstance(value, bool | float):
        return int(value)
    if kind is float and not isinstance(value, bool):
        return float(value)
    if kind is str and text:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, kind):
            return value
        if text and kind is ObjectiveConfig and value in OBJECTIVES:
            return OBJECTIVES[value]()
    raise ValueError


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(str(a) for a in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        of = typing.get_args(kind)
        many = _words(of[0]).removeprefix("a ") + "s" * (of[0] in (int, float))
        return f"{many} with commas between" if of[-1] is Ellipsis else f"{len(of)} {many}"
    if kind is ObjectiveConfig:
        return " or ".join(OBJECTIVES)
    if is_dataclass(kind) and isinstance(kind, type):
        inner = ", ".join(f.name for f in fields(kind))
        return f"one of its fields ({inner})"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "none"}
    return names.get(kind, str(kind))
