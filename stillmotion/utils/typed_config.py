"""What the configurations of all training verbs share."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from stillmotion.errors import StillmotionError


def check_min(section: object, section_name: str, minimum: int, *field_names: str) -> None:
    """Raises where a number of a configuration is smaller. where: the section's place, such as "data"."""
    for name in field_names:
        value = getattr(section, name)
        if value < minimum:
            raise StillmotionError(f"{section_name}.{name} is {value}; it must be at least {minimum}")


_NO_MATCH = object()  # no value, where None is one
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "null"}


def to_dict(value: Any) -> Any:
    """Plain JSON of a configuration, with the verb of a run; one of several alternatives is told by its "name"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind: Any = type(value)
        told = {key: getattr(kind, key) for key in ("verb", "name") if hasattr(kind, key)}
        return told | {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_dict(v) for v in value]
    return value


def diff_configs(a: Any, b: Any) -> list[str]:
    """The fields in which two configurations differ, as "data.image_size: 112 ≠ 224"."""
    left, right = flatten_config(to_dict(a)), flatten_config(to_dict(b))
    keys = [k for k in left | right if left.get(k) != right.get(k)]
    return [f"{k}: {left.get(k)} ≠ {right.get(k)}" for k in keys]


def flatten_config(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their places, such as "data.image_size"."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flatten_config(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _parse_value(value_type: Any, data: Any, field_path: str) -> Any:
    """A value that is no configuration itself, where it is of the field's type."""
    choices = (
        typing.get_args(value_type)
        if isinstance(value_type, types.UnionType) or _has_origin(value_type, typing.Union)
        else (value_type,)
    )
    for choice in choices:
        found = _convert(choice, data)
        if found is not _NO_MATCH:
            return found
    raise StillmotionError(f"{field_path} is {data!r}; expected {_describe_types(choices)}")


def _convert(value_type: Any, data: Any) -> Any:
    """The value as this type, or `_NONE` where it is of another."""
    if value_type is Any:
        return data
    if _has_origin(value_type, typing.Literal):
        return next(
            (choice for choice in typing.get_args(value_type) if type(choice) is type(data) and choice == data),
            _NO_MATCH,
        )
    if _has_origin(value_type, tuple) and isinstance(data, list):
        of = typing.get_args(value_type)
        of = of[:1] * len(data) if of[-1] is Ellipsis else of
        parts = [_convert(one, value) for one, value in zip(of, data, strict=False)]
        return tuple(parts) if len(of) == len(data) and not any(part is _NO_MATCH for part in parts) else _NO_MATCH
    if value_type is float and isinstance(data, int | float) and not isinstance(data, bool):
        return data if math.isfinite(data) else _NO_MATCH
    return data if isinstance(value_type, type) and type(data) is value_type else _NO_MATCH


def _has_origin(value_type: Any, origin: Any) -> bool:
    return typing.get_origin(value_type) is origin


def _describe_types(choices: tuple[Any, ...]) -> str:
    words = []
    for choice in choices:
        if _has_origin(choice, typing.Literal):
            words.append(", ".join(map(repr, typing.get_args(choice))))
        else:
            words.append(_TYPE_NAMES.get(choice) or str(choice).replace("typing.", ""))
    return " or ".join(words)
