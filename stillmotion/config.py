"""A run's complete configuration: plain dataclasses, written to and read from JSON."""

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig


@dataclass(frozen=True)
class DataConfig:
    """Which videos, and what is taken of them.

    Attributes:
        path: a folder of videos, a list (CSV or "path label" lines), a public set's folder, or "synthetic".
        kind: auto goes by what lies there; else folder, list, ucf101, hmdb51, kinetics, k200 (200 × 200
            videos of Kinetics), ssv2, gym99 or diving48.
        split: train, test or val, where the set has splits.
        annotations: where a public set's split files lie, if not beside its videos.
        clips: ϱ, random clips of each video.
        frames: L, frames of a clip.
        stride: δ, from one frame of a clip to the next.
        size: pixels a side.
        augment: a preset: slowfast, vididi, weak, synthetic or none.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: str = "synthetic"
    kind: str = "auto"
    split: str | None = None
    annotations: str | None = None
    clips: int = 2
    frames: int = 8
    stride: int = 8
    size: int = 224
    augment: str = "slowfast"
    workers: int = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)


@dataclass(frozen=True)
class TrainConfig:
    """How the loop runs.

    Attributes:
        precision: of autocast; fp32 is none.
        accumulate: parts that a batch is computed in, to save memory; each is contrasted within itself.
        checkpoint_every: steps between two checkpoints.
        log_every: steps between two lines of metrics.jsonl.
        seed: of weights, clips and augmentation.
        device: auto, cpu, cuda or another torch device.
        threads: of torch on a CPU; 0 leaves it to torch.
    """

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    accumulate: int = 1
    checkpoint_every: int = 500
    log_every: int = 10
    seed: int = 0
    device: str = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("accumulate", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"train.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class Config:
    """Everything that decides what a pre-training run computes.

    Attributes:
        recipe: the named configuration it began as; --list names all.
    """

    recipe: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


Kind = TypeVar("Kind")

# Fields that older run folders lack: they were trained with what is now the default.
_LATER = {
    (MethodConfig, "views"),
    (SimCLRConfig, "negatives"),
    *((OptimConfig, name) for name in ("milestones", "gamma", "layer_decay")),
}


def to_json(value: Any) -> Any:
    """Plain JSON of a configuration; one of several alternatives is told by its "name"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind: Any = type(value)
        named = {"name": kind.name} if hasattr(kind, "name") else {}
        return named | {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


def from_json(data: dict[str, Any]) -> Config:
    """The configuration that `to_json` wrote; an unknown or missing field is an error, unless it came later."""
    return _build(Config, data, "config")


def load_config(folder: str | Path) -> Config:
    """The configuration of a run folder."""
    return read_config(folder, Config)


def read_config(folder: str | Path, kind: type[Kind]) -> Kind:
    """The configuration of a run folder, which is of this dataclass."""
    file = Path(folder) / "config.json"
    try:
        return _build(kind, json.loads(file.read_text()), "config")
    except (FileNotFoundError, NotADirectoryError):
        raise StillmotionError(f"{folder} is not a run folder: it has no config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StillmotionError(f"{file} is not JSON: {error}") from None


def differences(a: Any, b: Any) -> list[str]:
    """The fields in which two configurations differ, as "data.size: 112 ≠ 224"."""
    left, right = _flat(to_json(a)), _flat(to_json(b))
    keys = [k for k in left | right if left.get(k) != right.get(k)]
    return [f"{k}: {left.get(k)} ≠ {right.get(k)}" for k in keys]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _build(kind: Any, data: Any, where: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise StillmotionError(f"{where} is {data!r}; expected named fields")
        fields = {f.name for f in dataclasses.fields(kind)}
        later = {name for name in fields if (kind, name) in _LATER}
        given = set(data) - {"name"} if "name" not in fields else set(data)
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
    return tuple(data) if isinstance(data, list) else data
