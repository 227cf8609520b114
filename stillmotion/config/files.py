"""Configurations as JSON, and the run folders that hold them."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from stillmotion.config.base import ClipsConfig, RunConfig, TrainConfig
from stillmotion.config.detect import DetectConfig
from stillmotion.config.finetune import FinetuneConfig, HeadConfig, LabelledConfig
from stillmotion.config.pretrain import Config, DataConfig
from stillmotion.config.segment import FramesConfig, SegmentConfig
from stillmotion.config.transfer import PairsConfig, TransferConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Located, Videos
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig, ModelConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.objectives import OBJECTIVES
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.transfer import TransferMethodConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig

FILE = "config.json"
CONFIGS: dict[str, type[RunConfig]] = {
    kind.verb: kind for kind in (Config, TransferConfig, FinetuneConfig, DetectConfig, SegmentConfig)
}
Kind = TypeVar("Kind")

# Fields that older run folders lack: they were trained with what is now the default, or with what `_BEFORE` says.
_LATER = {
    (MethodConfig, "views"),
    *((ModelConfig, name) for name in ("keep_time", "cells", "images")),
    *((DataConfig, name) for name in ("kept", "share", "finish", "shuffle_buffer")),
    (SimCLRConfig, "negatives"),
    (SolverConfig, "curvature"),
    (SplitConfig, "delays"),
    *((TrainConfig, name) for name in ("checkpointing", "compile", "deterministic", "keep", "loggers")),
    *((TrainConfig, f"evaluate_{name}") for name in ("every", "data", "videos")),
    (ViewsConfig, "route"),
    (ViewsConfig, "colour"),
    (ViewsConfig, "norm"),
    (HeadConfig, "pool"),
    (HeadConfig, "unfreeze"),
    (Videos, "fold"),
    (DataConfig, "fps"),
    (ClipsConfig, "fps"),
    (LabelledConfig, "clips"),
    (SyntheticConfig, "named"),
    *((OptimConfig, name) for name in ("milestones", "gamma", "layer_decay", "cosine_from")),
}
_BEFORE: dict[type, dict[str, Any]] = {
    ModelConfig: {"border": "zeros"},
    MethodConfig: {"balance": 0.0},
    TransferMethodConfig: {"scale": "own"},
    PairsConfig: {"flip": 0.0},
}
# Fields that had another name: of this class and its subclasses, from the old one to the present one.
_RENAMED: dict[type, dict[str, str]] = {Located: {"kind": "layout"}, FramesConfig: {"split": "fold"}}


_NONE = object()  # no value, where None is one
_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "null"}


def to_json(value: Any) -> Any:
    """Plain JSON of a configuration, with the verb of a run; one of several alternatives is told by its "name"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind: Any = type(value)
        told = {key: getattr(kind, key) for key in ("verb", "name") if hasattr(kind, key)}
        return told | {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


def from_json(data: dict[str, Any]) -> Config:
    """The configuration that `to_json` wrote; an unknown or missing field is an error, unless it came later."""
    return _build(Config, data, "config")


def load_config(folder: str | Path) -> Config:
    """The configuration of a pre-training run's folder."""
    return read_config(folder, Config)


def read_config(folder: str | Path, kind: type[Kind]) -> Kind:
    """The configuration of a run folder, or in a config.json, which is of this dataclass."""
    said = _read(Path(folder))
    verb, wanted = _verb(said), getattr(kind, "verb", None)
    if verb is not None and wanted is not None and verb != wanted:
        raise StillmotionError(f"{folder} holds a run of {verb}, not of {wanted}")
    return _build(kind, said, "config")


def read_any_config(folder: str | Path) -> RunConfig:
    """The configuration of a run folder, or in a config.json, of whichever verb."""
    return any_from_json(_read(Path(folder)), str(folder))


def any_from_json(said: Any, where: str = "this") -> RunConfig:
    """The configuration, of whichever verb, that `to_json` wrote. where: what errors call it."""
    verb = _verb(said)
    if verb is None:
        raise StillmotionError(f"{where} holds no run of {', '.join(CONFIGS)}")
    found: RunConfig = _build(CONFIGS[verb], said, "config")
    return found


def verb_of(folder: str | Path) -> str | None:
    """The verb that wrote a run folder; None where none of ours did."""
    try:
        return _verb(json.loads((Path(folder) / FILE).read_text()))
    except (OSError, ValueError):
        return None


def _verb(said: Any) -> str | None:
    """Which verb a configuration is of; folders written before it was noted are told by their fields."""
    if not isinstance(said, dict) or "model_type" in said:  # the latter is a transformers model's
        return None
    verb = said.get("verb")
    if verb is None:
        head = said["head"] if isinstance(said.get("head"), dict) else {}
        marks = {"smoothing": "finetune", "dilate": "detect", "name": "segment"}
        of_head = next((verb for mark, verb in marks.items() if mark in head), None)
        verb = "transfer" if "images" in said else "pretrain" if "method" in said else of_head
    return verb if isinstance(verb, str) and verb in CONFIGS else None


def _read(place: Path) -> Any:
    file = place if place.suffix == ".json" else place / FILE
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise StillmotionError(f"{place} is not a run folder: it has no {FILE}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StillmotionError(f"{file} is not JSON: {error}") from None


def differences(a: Any, b: Any) -> list[str]:
    """The fields in which two configurations differ, as "data.size: 112 ≠ 224"."""
    left, right = flat(to_json(a)), flat(to_json(b))
    keys = [k for k in left | right if left.get(k) != right.get(k)]
    return [f"{k}: {left.get(k)} ≠ {right.get(k)}" for k in keys]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their places, such as "data.size"."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _build(kind: Any, data: Any, where: str) -> Any:
    if kind is ObjectiveConfig and isinstance(data, dict):
        kind = OBJECTIVES.named(str(data.get("name")))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise StillmotionError(f"{where} is {data!r}; expected named fields")
        fields = {f.name for f in dataclasses.fields(kind)}
        later = {name for owner, name in _LATER if issubclass(kind, owner)}
        renamed = {
            old: new for owner, names in _RENAMED.items() if issubclass(kind, owner) for old, new in names.items()
        }
        told = {"verb", "name"} - fields
        data = {renamed.get(name, name): value for name, value in data.items() if name not in told}
        data = _BEFORE.get(kind, {}) | data
        given = set(data)
        if given - fields or fields - given - later:
            raise StillmotionError(
                f"{where} has unknown fields {sorted(given - fields)} and lacks {sorted(fields - given - later)}; "
                "it was written by another version"
            )
        hints = typing.get_type_hints(kind)
        return kind(**{name: _build(hints[name], data[name], f"{where}.{name}") for name in fields & given})
    options: list[Any] = [o for o in typing.get_args(kind) if dataclasses.is_dataclass(o)]
    if isinstance(kind, types.UnionType) and options:
        name = data.get("name") if isinstance(data, dict) else data
        for option in options:
            if option.name == name:
                return _build(option, data, where)
        raise StillmotionError(f"{where} is {name!r}; known are {', '.join(o.name for o in options)}")
    return _leaf(kind, data, where)


def _leaf(kind: Any, data: Any, where: str) -> Any:
    """A value that is no configuration itself, where it is of the field's type."""
    choices = typing.get_args(kind) if isinstance(kind, types.UnionType) or _is(kind, typing.Union) else (kind,)
    for choice in choices:
        found = _fitting(choice, data)
        if found is not _NONE:
            return found
    raise StillmotionError(f"{where} is {data!r}; expected {_expected(choices)}")


def _fitting(kind: Any, data: Any) -> Any:
    """The value as this type, or `_NONE` where it is of another."""
    if kind is Any:
        return data
    if _is(kind, typing.Literal):
        return next(
            (choice for choice in typing.get_args(kind) if type(choice) is type(data) and choice == data), _NONE
        )
    if _is(kind, tuple) and isinstance(data, list):
        of = typing.get_args(kind)
        of = of[:1] * len(data) if of[-1] is Ellipsis else of
        parts = [_fitting(one, value) for one, value in zip(of, data, strict=False)]
        return tuple(parts) if len(of) == len(data) and not any(part is _NONE for part in parts) else _NONE
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        return data if math.isfinite(data) else _NONE
    return data if isinstance(kind, type) and type(data) is kind else _NONE


def _is(kind: Any, origin: Any) -> bool:
    return typing.get_origin(kind) is origin


def _expected(choices: tuple[Any, ...]) -> str:
    words = []
    for choice in choices:
        if _is(choice, typing.Literal):
            words.append(", ".join(map(repr, typing.get_args(choice))))
        else:
            words.append(_WORDS.get(choice) or str(choice).replace("typing.", ""))
    return " or ".join(words)
