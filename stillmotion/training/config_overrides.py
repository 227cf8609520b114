"""Single fields of a configuration, named by their place in it and read as their own types."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

from stillmotion.errors import StillmotionError
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.objectives import OBJECTIVES
from stillmotion.training.config import RunConfig
from stillmotion.utils.registry import did_you_mean

ConfigT = typing.TypeVar("ConfigT", bound=RunConfig)


def apply_overrides(config: ConfigT, overrides: Mapping[str, Any]) -> ConfigT:
    """The configuration with some fields changed, in the order given.

    overrides: by place, such as "method.static_dynamic.radius"; text is read as the field's type ("8,16,32" is a tuple, "moco"
        the objective of that name).
    """
    for place, value in overrides.items():
        config = _replace_field(config, place.split("."), value, place)
    return config


def parse_assignments(words: typing.Iterable[str]) -> dict[str, str]:
    """The changes that words such as "optim.epochs=2" ask for."""
    changes = {}
    for word in words:
        place, equals, value = word.partition("=")
        if not equals:
            raise StillmotionError(f"{word!r} sets nothing; write field=value, such as optim.epochs=2")
        changes[place] = value
    return changes


def _replace_field(tree: Any, names: list[str], value: Any, field_path: str) -> Any:
    name, *rest = names
    known = [f.name for f in fields(tree)]
    if name not in known:
        raise StillmotionError(f"there is no field {field_path!r} ({name!r} is unknown){did_you_mean(name, known)}")
    inner = getattr(tree, name)
    if rest and not is_dataclass(inner):
        raise StillmotionError(f"there is no field {field_path!r}: {name} is {inner!r} and has no fields")
    kind = typing.get_type_hints(type(tree))[name]
    return replace(
        tree, **{name: _replace_field(inner, rest, value, field_path) if rest else _parse_text(kind, value, field_path)}
    )


def _parse_text(kind: Any, value: Any, field_path: str) -> Any:
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    for option in sorted(options, key=lambda o: o is not types.NoneType):
        try:
            return _convert_text(option, value)
        except (ValueError, TypeError):
            continue
    raise StillmotionError(
        f"{field_path} cannot be {value!r}; expected {' or '.join(_describe_types(o) for o in options)}"
    )


def _convert_text(kind: Any, value: Any) -> Any:
    """The value as this type; ValueError where it is none."""
    text = isinstance(value, str)
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)[[str(a) for a in typing.get_args(kind)].index(str(value))]
    if typing.get_origin(kind) is tuple:
        parts = [p for p in value.split(",") if p] if text else list(value)
        of = typing.get_args(kind)
        of = of[:1] * len(parts) if of[-1] is Ellipsis else of
        return tuple(_convert_text(k, p) for k, p in zip(of, parts, strict=True))
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


def _describe_types(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(str(a) for a in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        of = typing.get_args(kind)
        many = _describe_types(of[0]).removeprefix("a ") + "s" * (of[0] in (int, float))
        return f"{many} with commas between" if of[-1] is Ellipsis else f"{len(of)} {many}"
    if kind is ObjectiveConfig:
        return " or ".join(OBJECTIVES)
    if is_dataclass(kind) and isinstance(kind, type):
        inner = ", ".join(f.name for f in fields(kind))
        return f"one of its fields ({inner})"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "none"}
    return names.get(kind, str(kind))
