"""Typed configurations: dataclasses to and from JSON, single fields from `field=value` text, checks of ranges."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from stillmotion.errors import StillmotionError
from stillmotion.utils.registry import did_you_mean

ConfigT = TypeVar("ConfigT")
_NO_MATCH = object()  # None is a value
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "none"}


def check_ranges(section: object, section_name: str, **limits: tuple[float | None, float | None]) -> None:
    """Raise if a number of a configuration is out of its range.

    Args:
        section: The configuration whose fields are checked.
        section_name: Its path in the whole configuration, such as "data"; empty for the whole itself.
        **limits: Smallest and largest allowed value by field name; None sets no limit.
    """
    for name, (least, most) in limits.items():
        value = getattr(section, name)
        if (least is None or value >= least) and (most is None or value <= most):
            continue
        limit = f"at least {least}" if most is None else f"at most {most}" if least is None else f"{least} to {most}"
        raise StillmotionError(f"{section_name + '.' if section_name else ''}{name} is {value}; it must be {limit}")


def to_dict(value: Any, *, include: Callable[[dataclasses.Field[Any]], bool] = lambda field: True) -> Any:
    """Return a configuration as plain JSON data, with its verb and, of one of several alternatives, its "name".

    Args:
        value: The configuration.
        include: Decides which fields are included.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind: Any = type(value)
        tags = {key: getattr(kind, key) for key in ("verb", "name") if hasattr(kind, key)}
        fields = [field for field in dataclasses.fields(value) if include(field)]
        return tags | {field.name: to_dict(getattr(value, field.name), include=include) for field in fields}
    if isinstance(value, tuple | list):
        return [to_dict(v, include=include) for v in value]
    return value


def from_dict(config_class: type[ConfigT], data: Any, field_path: str = "config") -> ConfigT:
    """Build a configuration from what `to_dict` returned.

    A class with a class method `choices()`, such as `ObjectiveConfig`, is replaced by the choice named by "name".

    Args:
        config_class: The dataclass to build.
        data: JSON data.
        field_path: What errors call it.

    Raises:
        StillmotionError: A field is unknown, missing or of another type.
    """
    built: ConfigT = _read(config_class, data, field_path)
    return built


def apply_overrides(config: ConfigT, overrides: Mapping[str, Any]) -> ConfigT:
    """Return a configuration with some fields replaced, in the order given.

    Args:
        config: The configuration to change.
        overrides: Values by dotted path, such as "method.static_dynamic.radius". Text is read as the field's type:
            "8,16,32" as a tuple, "moco" as the objective of that name.
    """
    for path, value in overrides.items():
        config = _replace_field(config, path.split("."), value, path)
    return config


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """Parse words such as "optim.epochs=2" into overrides by field."""
    overrides = {}
    for word in words:
        path, equals, value = word.partition("=")
        if not equals:
            raise StillmotionError(f"{word!r} sets nothing; write field=value, such as optim.epochs=2")
        overrides[path] = value
    return overrides


def diff_configs(a: Any, b: Any) -> list[str]:
    """Describe the fields in which two configurations differ, as "data.image_size: 112 ≠ 224".

    Args:
        a: A configuration, or the result of `to_dict`.
        b: Another one.
    """
    left, right = flatten_config(to_dict(a)), flatten_config(to_dict(b))
    return [f"{k}: {left.get(k)} ≠ {right.get(k)}" for k in left | right if left.get(k) != right.get(k)]


def flatten_config(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested data to values by dotted path, such as "data.image_size".

    Args:
        tree: Nested data.
        prefix: Prefix of all paths.
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten_config(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _replace_field(tree: Any, names: list[str], value: Any, field_path: str) -> Any:
    name, *rest = names
    known = [f.name for f in dataclasses.fields(tree)]
    if name not in known:
        raise StillmotionError(f"there is no field {field_path!r} ({name!r} is unknown){did_you_mean(name, known)}")
    inner = getattr(tree, name)
    if rest and not dataclasses.is_dataclass(inner):
        raise StillmotionError(f"there is no field {field_path!r}: {name} is {inner!r} and has no fields")
    kind = typing.get_type_hints(type(tree))[name]
    changed = _replace_field(inner, rest, value, field_path) if rest else _read(kind, value, field_path, from_text=True)
    return dataclasses.replace(tree, **{name: changed})


def _read(kind: Any, value: Any, field_path: str, *, from_text: bool = False) -> Any:
    """Read a value as a field's type; of a union, as the first type that it fits."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    for option in sorted(options, key=lambda o: o is not types.NoneType):  # "none" is text, too
        result = _convert(option, value, field_path, from_text=from_text)
        if result is not _NO_MATCH:
            return result
    given = value.get("name") if isinstance(value, dict) else value
    raise StillmotionError(f"{field_path} is {given!r}; expected {' or '.join(map(_describe_type, options))}")


def _convert(kind: Any, value: Any, field_path: str, *, from_text: bool) -> Any:
    """Return the value as this type, or `_NO_MATCH` if it is of another."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if from_text and isinstance(value, str):
        value = _parse_text(kind, value)
    if kind is Any:
        return value
    if origin is typing.Literal:
        return next((choice for choice in args if type(choice) is type(value) and choice == value), _NO_MATCH)
    if origin is tuple and isinstance(value, list | tuple):
        types_ = args[:1] * len(value) if args[-1] is Ellipsis else args
        items = [_convert(t, v, field_path, from_text=from_text) for t, v in zip(types_, value, strict=False)]
        return tuple(items) if len(types_) == len(value) and not any(i is _NO_MATCH for i in items) else _NO_MATCH
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return value if math.isfinite(value) else _NO_MATCH
    if _is_config(kind):
        return value if isinstance(value, kind) else _build(kind, value, field_path)
    return value if isinstance(kind, type) and type(value) is kind else _NO_MATCH


def _build(config_class: Any, data: Any, field_path: str) -> Any:
    """Build a nested configuration from JSON data; `_NO_MATCH` if the data are of another alternative."""
    if not isinstance(data, dict):
        return _NO_MATCH
    if hasattr(config_class, "choices"):
        config_class = config_class.choices().lookup(str(data.get("name")))
    names = [f.name for f in dataclasses.fields(config_class)]
    if "name" not in names and hasattr(config_class, "name") and data.get("name") != config_class.name:
        return _NO_MATCH
    given = {name: value for name, value in data.items() if name in names or name not in ("verb", "name")}
    unknown, missing = sorted(given.keys() - set(names)), sorted(set(names) - given.keys())
    if unknown or missing:
        raise StillmotionError(
            f"{field_path} has unknown fields {unknown} and lacks {missing}; it was written by another version"
        )
    hints = typing.get_type_hints(config_class)
    return config_class(**{name: _read(hints[name], given[name], f"{field_path}.{name}") for name in names})


def _parse_text(kind: Any, text: str) -> Any:
    """Parse text as JSON data of this type; text that is not is returned as it is."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return next((choice for choice in args if str(choice) == text), text)
    if origin is tuple:
        return [part for part in text.split(",") if part]
    if kind is types.NoneType:
        return None if text == "none" else text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if _is_config(kind) and hasattr(kind, "choices"):
        return kind.choices()[text]() if text in kind.choices() else text
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _describe_type(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(map(str, args))
    if origin is tuple:
        items = _describe_type(args[0]).removeprefix("a ") + "s" * (args[0] in (int, float))
        return f"{items} separated by commas" if args[-1] is Ellipsis else f"{len(args)} {items}"
    if _is_config(kind):
        if hasattr(kind, "choices"):
            return " or ".join(kind.choices())
        fields = [f.name for f in dataclasses.fields(kind)]
        return kind.name if "name" not in fields and hasattr(kind, "name") else f"the fields {', '.join(fields)}"
    return _TYPE_NAMES.get(kind) or str(kind).replace("typing.", "")
