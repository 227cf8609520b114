"""Configurations as JSON, and the run folders that hold them."""

import contextlib
import dataclasses
import json
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from stillmotion.data.datasets.config import VideoDataConfig, VideoSource
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import TransferMethodConfig
from stillmotion.methods.method import MethodConfig
from stillmotion.methods.network import ModelConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.objectives import OBJECTIVES
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.checkpoint import STATE_FILE, load_training_state
from stillmotion.training.config import ClipConfig, RunConfig, TrainConfig
from stillmotion.training.finetune.config import ClassifierConfig, FinetuneDataConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.segment.config import SegmentDataConfig
from stillmotion.training.tasks import RUN_CONFIGS
from stillmotion.training.transfer.config import TransferDataConfig
from stillmotion.utils import file_lock, files
from stillmotion.utils.device import resolve_precision
from stillmotion.utils.typed_config import _parse_value, diff_configs, to_dict

CONFIG_FILE = "config.json"
ConfigT = TypeVar("ConfigT")
# Fields that older run folders lack: they were trained with what is now the default, or with what `_BEFORE` says.
_LATER = {
    (MethodConfig, "views"),
    *((ModelConfig, name) for name in ("per_frame_features", "grid_size", "image_model")),
    *((PretrainDataConfig, name) for name in ("cached_frames", "token_crop", "augment_on", "shuffle_buffer")),
    (SimCLRConfig, "negatives"),
    (SolverConfig, "curvature_limit"),
    (StaticDynamicConfig, "num_delays"),
    *(
        (TrainConfig, name)
        for name in ("activation_checkpointing", "compile", "deterministic", "save_epochs", "loggers")
    ),
    *((TrainConfig, f"eval_{name}") for name in ("every_epochs", "data", "num_videos")),
    (ViewsConfig, "loss_routing"),
    (ViewsConfig, "derivative_color"),
    (ViewsConfig, "batch_norm"),
    (ClassifierConfig, "pool"),
    (ClassifierConfig, "unfreeze"),
    (VideoDataConfig, "fold"),
    (PretrainDataConfig, "fps"),
    (ClipConfig, "fps"),
    (FinetuneDataConfig, "clips_per_video"),
    (SyntheticConfig, "value_names"),
    *((OptimConfig, name) for name in ("milestones", "gamma", "layer_decay", "cosine_start")),
}
_BEFORE: dict[type, dict[str, Any]] = {
    ModelConfig: {"temporal_padding": "zeros"},
    MethodConfig: {"gradient_balance": 0.0},
    TransferMethodConfig: {"scale": "own"},
    TransferDataConfig: {"flip_prob": 0.0},
}
# Fields that had another name: of this class and its subclasses, from the old one to the present one.
_RENAMED: dict[type, dict[str, str]] = {VideoSource: {"kind": "layout"}, SegmentDataConfig: {"split": "fold"}}


def pretrain_config_from_dict(data: dict[str, Any]) -> PretrainConfig:
    """The configuration that `to_json` wrote; an unknown or missing field is an error, unless it came later."""
    return from_dict(PretrainConfig, data, "config")


def load_pretrain_config(run_dir: str | Path) -> PretrainConfig:
    """The configuration of a pre-training run's folder."""
    return load_config(run_dir, PretrainConfig)


def load_config(run_dir: str | Path, config_class: type[ConfigT]) -> ConfigT:
    """The configuration of a run folder, or in a config.json, which is of this dataclass."""
    said = _read_config_json(Path(run_dir))
    verb, wanted = _verb_of_config(said), getattr(config_class, "verb", None)
    if verb is not None and wanted is not None and verb != wanted:
        raise StillmotionError(f"{run_dir} holds a run of {verb}, not of {wanted}")
    return from_dict(config_class, said, "config")


def load_any_config(run_dir: str | Path) -> RunConfig:
    """The configuration of a run folder, or in a config.json, of whichever verb."""
    return config_from_dict(_read_config_json(Path(run_dir)), str(run_dir))


def config_from_dict(data: Any, source_name: str = "this") -> RunConfig:
    """The configuration, of whichever verb, that `to_json` wrote. where: what errors call it."""
    verb = _verb_of_config(data)
    if verb is None:
        raise StillmotionError(f"{source_name} holds no run of {', '.join(RUN_CONFIGS)}")
    found: RunConfig = from_dict(RUN_CONFIGS[verb], data, "config")
    return found


def run_verb(run_dir: str | Path) -> str | None:
    """The verb that wrote a run folder; None where none of ours did."""
    try:
        return _verb_of_config(json.loads((Path(run_dir) / CONFIG_FILE).read_text()))
    except (OSError, ValueError):
        return None


def _verb_of_config(data: Any) -> str | None:
    """Which verb a configuration is of; folders written before it was noted are told by their fields."""
    if not isinstance(data, dict) or "model_type" in data:  # the latter is a transformers model's
        return None
    verb = data.get("verb")
    if verb is None:
        head = data["head"] if isinstance(data.get("head"), dict) else {}
        marks = {"label_smoothing": "finetune", "dilate": "detect", "name": "segment"}
        of_head = next((verb for mark, verb in marks.items() if mark in head), None)
        verb = "transfer" if "image_model" in data else "pretrain" if "method" in data else of_head
    return verb if isinstance(verb, str) and verb in RUN_CONFIGS else None


def _read_config_json(path: Path) -> Any:
    file = path if path.suffix == ".json" else path / CONFIG_FILE
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise StillmotionError(f"{path} is not a run folder: it has no {CONFIG_FILE}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StillmotionError(f"{file} is not JSON: {error}") from None


def from_dict(config_class: Any, data: Any, field_path: str) -> Any:
    if config_class is ObjectiveConfig and isinstance(data, dict):
        config_class = OBJECTIVES.lookup(str(data.get("name")))
    if isinstance(config_class, type) and dataclasses.is_dataclass(config_class):
        if not isinstance(data, dict):
            raise StillmotionError(f"{field_path} is {data!r}; expected named fields")
        fields = {f.name for f in dataclasses.fields(config_class)}
        later = {name for owner, name in _LATER if issubclass(config_class, owner)}
        renamed = {
            old: new
            for owner, names in _RENAMED.items()
            if issubclass(config_class, owner)
            for old, new in names.items()
        }
        told = {"verb", "name"} - fields
        data = {renamed.get(name, name): value for name, value in data.items() if name not in told}
        data = _BEFORE.get(config_class, {}) | data
        given = set(data)
        if given - fields or fields - given - later:
            raise StillmotionError(
                f"{field_path} has unknown fields {sorted(given - fields)} and lacks {sorted(fields - given - later)}; "
                "it was written by another version"
            )
        hints = typing.get_type_hints(config_class)
        return config_class(
            **{name: from_dict(hints[name], data[name], f"{field_path}.{name}") for name in fields & given}
        )
    options: list[Any] = [o for o in typing.get_args(config_class) if dataclasses.is_dataclass(o)]
    if isinstance(config_class, types.UnionType) and options:
        name = data.get("name") if isinstance(data, dict) else data
        for option in options:
            if option.name == name:
                return from_dict(option, data, field_path)
        raise StillmotionError(f"{field_path} is {name!r}; known are {', '.join(o.name for o in options)}")
    return _parse_value(config_class, data, field_path)


RESULTS_FILE = "results.json"


def load_results(run_dir: str | Path) -> dict[str, Any]:
    """What a finished run measured."""
    try:
        return files.read_json(Path(run_dir) / RESULTS_FILE, hint="the same command again makes it anew")
    except OSError:
        raise StillmotionError(f"{run_dir} has no {RESULTS_FILE}; the same command again finishes the run") from None


def _is_readable_json(path: Path) -> bool:
    """Whether the results are there; torn ones are named, and are to be made anew."""
    if not path.exists():
        return False
    try:
        files.read_json(path, hint="it is made anew")
    except StillmotionError as error:
        print(error, file=sys.stderr)
        return False
    return True


RunConfigT = TypeVar("RunConfigT", bound=RunConfig)


@contextlib.contextmanager
def lock_run_dir(run_dir: str | Path) -> Iterator[None]:
    """Hold a run folder as its one writer; where the first rank cannot have it, all ranks end with its error.

    What lies in the folder is no input of other runs. A folder that was made for nothing, as an error shows, is taken
    away again.
    """
    place = Path(run_dir)
    with contextlib.ExitStack() as holding:

        def hold() -> bool:
            new = not place.exists()
            files.ensure_dir(place, mark_generated=True)
            holding.enter_context(file_lock.lock_dir(place))
            return new

        new = process_group.run_on_main(hold)
        try:
            yield
        except BaseException:
            if new and process_group.get_rank() == 0:
                _remove_if_unused(place)
            raise


def check_inputs_not_overwritten(run_dir: str | Path, data_path: str, *other_inputs: str | Path | None) -> None:
    """Raises where a run would write over what it reads.

    data_path: a folder, in which runs may lie, or a list. others: files and folders, as far as they are there.
    """
    data = Path(data_path)
    if data.is_dir() and data.resolve() == Path(run_dir).resolve():
        raise StillmotionError(f"{run_dir} is the folder of the videos; choose another --out")
    given = [Path(other) for other in other_inputs if other]
    files.check_no_overlap(
        run_dir, [place for place in (data, *given) if place.exists() and not (place is data and data.is_dir())]
    )


def open_run_dir(run_dir: Path, config: RunConfig) -> None:
    """Make the folder and write `config.json`, or check that the run in it is this one.

    A run that has not come to its first checkpoint has nothing to lose: it may be replaced. A run may be made longer:
    its epochs may grow, and from there on its schedule is that of the longer run. And one that is not at its end may go
    on more gently: at a lower rate, with clipped gradients, in fp32.
    """
    process_group.run_on_main(lambda: _write_config(run_dir, config))


def check_resumable(run_dir: Path, config: RunConfig) -> list[str]:
    """Raises where `open_folder` would; else how a run that is there goes on otherwise than before, in words."""
    told: list[str] = []
    verb = run_verb(run_dir)
    if verb is not None and verb != config.verb:
        raise StillmotionError(f"{run_dir} holds a run of {verb}; choose another --out or delete it")
    if (run_dir / CONFIG_FILE).exists() and (run_dir / STATE_FILE).exists():
        there, told = _apply_allowed_changes(run_dir, load_config(run_dir, type(config)), config)
        other = diff_configs(resume_identity(there), resume_identity(config))
        if other:
            raise StillmotionError(
                f"{run_dir} holds another run ({'; '.join(other[:3])}); choose another --out or delete it"
            )
    elif verb is None and _is_json(run_dir / CONFIG_FILE):
        raise StillmotionError(f"{run_dir / CONFIG_FILE} is not of a run of stillmotion's; choose another --out")
    return told


def _write_config(run_dir: Path, config: RunConfig) -> None:
    told = check_resumable(run_dir, config)
    files.ensure_dir(run_dir)
    files.write_json(run_dir / CONFIG_FILE, to_dict(config))
    for line in told:
        print(f"{run_dir} goes on {line}")


def resolve_run_precision(config: RunConfigT, run_dir: str | Path, device: torch.device) -> RunConfigT:
    """The configuration with what "auto" stands for: the precision that the folder's run has, or this device's.

    A run does not change its precision by being moved to another kind of device, and says so.
    """
    if config.train.precision != "auto":
        return config
    place, own = Path(run_dir), resolve_precision(device, "auto")
    precision = own
    if (place / CONFIG_FILE).exists() and (place / STATE_FILE).exists() and run_verb(place) == config.verb:
        there = load_config(place, type(config)).train.precision
        precision = own if there == "auto" else there
    if precision != own and process_group.get_rank() == 0:
        print(f"{run_dir} goes on in {precision}, as it began; a new run on this {device.type} has {own}")
    return replace(config, train=replace(config.train, precision=cast(Any, precision)))


def _apply_allowed_changes(run_dir: Path, existing: RunConfig, config: RunConfig) -> tuple[RunConfig, list[str]]:
    """The configuration of a folder's run with what may change in its course, and what changes, in words."""
    told: list[str] = []
    before, now, was = existing.optim, config.optim, existing.train.precision
    changed = existing
    if now.lr < before.lr:
        told.append(f"at a learning rate of {now.lr:g} in place of {before.lr:g}, from its last good checkpoint")
        changed = replace(changed, optim=replace(changed.optim, lr=now.lr))
    if _max_norm_or_inf(now) < _max_norm_or_inf(before):
        told.append(f"with gradients clipped at {now.max_grad_norm:g}")
        changed = replace(changed, optim=replace(changed.optim, max_grad_norm=now.max_grad_norm))
    if was != "fp32" and config.train.precision == "fp32":
        told.append(f"in fp32 in place of {was}")
        changed = replace(changed, train=replace(changed.train, precision="fp32"))
    if now.epochs > before.epochs:
        told.append(
            f"to {now.epochs} epochs in place of {before.epochs}; its learning rate follows the longer schedule from "
            "here on, as no single run would"
        )
        changed = replace(changed, optim=replace(changed.optim, epochs=now.epochs))
    elif told and _is_finished(run_dir):
        return existing, []
    return changed, told


def _is_finished(run_dir: Path) -> bool:
    state = load_training_state(run_dir)
    return state is not None and state["step"] >= state.get("total_steps", float("inf"))


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True


def _max_norm_or_inf(optim: OptimConfig) -> float:
    return optim.max_grad_norm or float("inf")


def resume_identity(config: Any) -> Any:
    """A configuration without what may change between two attempts at the same run."""
    watched = {"loggers": (), "eval_every_epochs": 0, "eval_data": "", "eval_num_videos": 4}
    train = replace(config.train, log_every_steps=1, checkpoint_every_steps=1, num_threads=0, save_epochs=(), deterministic=False, **watched)
    return replace(config, recipe="", data=replace(config.data, num_workers=0), train=train)


def _remove_if_unused(run_dir: Path) -> None:
    own = {file_lock.LOCK_FILE, files.GENERATED_MARKER}
    with contextlib.suppress(OSError):
        if {file.name for file in run_dir.iterdir()} <= own:
            for name in own:
                (run_dir / name).unlink(missing_ok=True)
            run_dir.rmdir()
