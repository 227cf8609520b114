"""Configurations as JSON, and the run folders that hold them."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.checkpoint import STATE_FILE, load_training_state
from stillmotion.training.config import RunConfig
from stillmotion.training.tasks import CONFIG_FILE, TASKS, config_class, run_verb, verb_of_config
from stillmotion.utils import file_lock, files
from stillmotion.utils.device import resolve_precision
from stillmotion.utils.typed_config import diff_configs, from_dict, to_dict

ConfigT = TypeVar("ConfigT")


def load_config(run_dir: str | Path, expected_class: type[ConfigT]) -> ConfigT:
    """Load the configuration of a run.

    Args:
        run_dir: A run directory, or the path of a config.json.
        expected_class: The configuration class of its verb.
    """
    data = _read_config_json(Path(run_dir))
    verb, expected = verb_of_config(data), getattr(expected_class, "verb", None)
    if verb is not None and expected is not None and verb != expected:
        raise StillmotionError(f"{run_dir} contains a {verb} run, not a {expected} run.")
    return from_dict(expected_class, data)


def load_any_config(run_dir: str | Path) -> RunConfig:
    """Load the configuration of a run of any training verb from its directory or its config.json."""
    return config_from_dict(_read_config_json(Path(run_dir)), str(run_dir))


def config_from_dict(data: Any, source_name: str = "this") -> RunConfig:
    """Build the configuration of any training verb from the contents of a config.json.

    Args:
        data: JSON data, as `to_dict` returned it.
        source_name: What an error calls it.
    """
    verb = verb_of_config(data)
    if verb is None:
        raise StillmotionError(f"{source_name} is not a run of {', '.join(TASKS)}.")
    return from_dict(config_class(verb), data)


def _read_config_json(path: Path) -> Any:
    file = path if path.suffix == ".json" else path / CONFIG_FILE
    try:
        return files.read_json(file, hint="restore it or choose another run folder")
    except (FileNotFoundError, NotADirectoryError):
        raise StillmotionError(f"{path} is not a run folder: it has no {CONFIG_FILE}") from None


RESULTS_FILE = "results.json"


def load_results(run_dir: str | Path) -> dict[str, Any]:
    """What a finished run measured."""
    try:
        return files.files.read_json(Path(run_dir) / RESULTS_FILE, hint="the same command again makes it anew")
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
        files.read_json(file)
    except (OSError, StillmotionError):
        return False
    return True


def _max_norm_or_inf(optim: OptimConfig) -> float:
    return optim.max_grad_norm or float("inf")


def resume_identity(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as JSON data, without fields that may change between two attempts at the same run."""
    data: dict[str, Any] = to_dict(config, include=lambda field: field.metadata.get("resume") != "free")
    return data


def _remove_if_unused(run_dir: Path) -> None:
    own = {file_lock.LOCK_FILE, files.GENERATED_MARKER}
    with contextlib.suppress(OSError):
        if {file.name for file in run_dir.iterdir()} <= own:
            for name in own:
                (run_dir / name).unlink(missing_ok=True)
            run_dir.rmdir()
