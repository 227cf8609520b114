"""The run directory: its lock, config.json, what may change on resume, and results.json."""

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.training.checkpoint import STATE_FILE, load_training_state
from stillmotion.training.config import RunConfig
from stillmotion.training.tasks import CONFIG_FILE, TASKS, config_class, verb_of_config, verb_of_run
from stillmotion.utils import file_lock, files
from stillmotion.utils.device import resolve_precision
from stillmotion.utils.typed_config import diff_configs, from_dict, to_dict

RESULTS_FILE = "results.json"
ConfigT = TypeVar("ConfigT")
RunConfigT = TypeVar("RunConfigT", bound=RunConfig)
logger = logging.getLogger(__name__)


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
    data = _read_config_json(Path(run_dir))
    verb = verb_of_config(data)
    if verb is None:
        raise StillmotionError(f"{run_dir} is not a run of {', '.join(TASKS)}.")
    return from_dict(config_class(verb), data)


def _read_config_json(path: Path) -> Any:
    file = path if path.suffix == ".json" else path / CONFIG_FILE
    try:
        return files.read_json(file, hint="Restore it or choose another run directory.")
    except (FileNotFoundError, NotADirectoryError):
        raise StillmotionError(f"{path} is not a run directory: it has no {CONFIG_FILE}.") from None


def load_results(run_dir: str | Path) -> dict[str, Any]:
    """Load results.json of a finished run."""
    try:
        return files.read_json(Path(run_dir) / RESULTS_FILE, hint="Run the same command to create it again.")
    except OSError:
        raise StillmotionError(
            f"{run_dir} has no {RESULTS_FILE}. Run the same command again to finish the run."
        ) from None


def is_readable_json(file: Path, *, warn: bool = True) -> bool:
    """Return whether a JSON file exists and can be read.

    Args:
        file: The file.
        warn: Log that a damaged file is created again.
    """
    try:
        files.read_json(file, hint="It is created again.")
    except OSError:
        return False
    except StillmotionError as error:
        if warn:
            logger.warning(str(error))
        return False
    return True


@contextlib.contextmanager
def lock_run_dir(run_dir: str | Path) -> Iterator[None]:
    """Lock a run directory for writing; if the main process fails to, all ranks raise its error.

    The directory is marked as generated, so that other runs do not use it as data. A directory that was created for a
    run that failed at once is removed.
    """
    path = Path(run_dir)
    with contextlib.ExitStack() as stack:

        def lock() -> bool:
            is_new = not path.exists()
            files.ensure_dir(path, mark_generated=True)
            stack.enter_context(file_lock.lock_dir(path))
            return is_new

        is_new = process_group.run_on_main(lock)
        try:
            yield
        except BaseException:
            if is_new and process_group.get_rank() == 0:
                _remove_if_unused(path)
            raise


def check_run_dir(
    run_dir: str | Path, data_path: str, *other_inputs: str | Path | None, cache_dir: str | Path | None = None
) -> None:
    """Raise if a run has no videos, would overwrite one of its inputs, or cannot write its directory.

    Args:
        run_dir: The run directory.
        data_path: A directory of videos, inside which runs may lie, or a list of videos.
        *other_inputs: Other files and directories that the run reads, if they exist.
        cache_dir: Directory of a cache that the run writes, if it is not inside the run directory.
    """
    if not data_path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    data = Path(data_path)
    if data.is_dir() and data.resolve() == Path(run_dir).resolve():
        raise StillmotionError(f"{run_dir} is the video directory. Choose another --out.")
    inputs = [Path(other) for other in other_inputs if other]
    if not data.is_dir():
        inputs.append(data)
    files.check_no_overlap(run_dir, [path for path in inputs if path.exists()])
    files.check_writable(run_dir)
    if cache_dir:
        files.check_writable(cache_dir, option_name="--cache-dir")


def open_run_dir(run_dir: Path, config: RunConfig) -> None:
    """Create the run directory and write config.json, or check that the run in it can be resumed.

    A run without a checkpoint may be replaced. A run may be made longer; from there on it follows the longer schedule.
    A run that is not finished may continue with a lower learning rate, with gradient clipping or in fp32.

    Args:
        run_dir: The run directory.
        config: Configuration of the run.
    """
    process_group.run_on_main(lambda: _write_config(run_dir, config))


def check_resumable(run_dir: Path, config: RunConfig) -> list[str]:
    """Raise if the run directory cannot be opened.

    Args:
        run_dir: The run directory.
        config: Configuration of the run.

    Returns:
        Descriptions of what changes on resume.
    """
    changes: list[str] = []
    verb = verb_of_run(run_dir)
    if verb is not None and verb != config.verb:
        raise StillmotionError(f"{run_dir} already contains a {verb} run. Choose another --out or delete it.")
    if (run_dir / CONFIG_FILE).exists() and (run_dir / STATE_FILE).exists():
        existing, changes = _apply_allowed_changes(run_dir, load_config(run_dir, type(config)), config)
        differences = diff_configs(resume_identity(existing), resume_identity(config))
        if differences:
            raise StillmotionError(
                f"{run_dir} contains a different run ({'; '.join(differences[:3])}). Choose another --out or delete it."
            )
    elif verb is None and is_readable_json(run_dir / CONFIG_FILE, warn=False):
        raise StillmotionError(f"{run_dir / CONFIG_FILE} was not written by stillmotion. Choose another --out.")
    return changes


def _write_config(run_dir: Path, config: RunConfig) -> None:
    changes = check_resumable(run_dir, config)
    files.ensure_dir(run_dir)
    files.write_json(run_dir / CONFIG_FILE, to_dict(config))
    if changes:
        logger.info("Resuming %s with changes: %s", run_dir, "; ".join(changes))


def resolve_run_precision(config: RunConfigT, run_dir: str | Path, device: torch.device) -> RunConfigT:
    """Replace precision auto by the precision of the existing run, or by this device's default.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        device: Device to train on.
    """
    if config.train.precision != "auto":
        return config
    path, default = Path(run_dir), resolve_precision(device, "auto")
    precision = default
    if (path / CONFIG_FILE).exists() and (path / STATE_FILE).exists() and verb_of_run(path) == config.verb:
        existing = load_config(path, type(config)).train.precision
        precision = default if existing == "auto" else existing
    if precision != default and process_group.get_rank() == 0:
        logger.info(
            "Resuming %s in %s, the precision it started with (a new run on %s would use %s).",
            run_dir,
            precision,
            device.type,
            default,
        )
    return replace(config, train=replace(config.train, precision=cast(Any, precision)))


def _apply_allowed_changes(run_dir: Path, existing: RunConfig, config: RunConfig) -> tuple[RunConfig, list[str]]:
    """The existing configuration with changes that are allowed on resume, and descriptions of these changes."""
    changes: list[str] = []
    old, new, old_precision = existing.optim, config.optim, existing.train.precision
    changed = existing
    if new.lr < old.lr:
        changes.append(f"learning rate {new.lr:g} instead of {old.lr:g}")
        changed = replace(changed, optim=replace(changed.optim, lr=new.lr))
    if (new.max_grad_norm or math.inf) < (old.max_grad_norm or math.inf):
        changes.append(f"gradient clipping at {new.max_grad_norm:g}")
        changed = replace(changed, optim=replace(changed.optim, max_grad_norm=new.max_grad_norm))
    if old_precision != "fp32" and config.train.precision == "fp32":
        changes.append(f"fp32 instead of {old_precision}")
        changed = replace(changed, train=replace(changed.train, precision="fp32"))
    if new.epochs > old.epochs:
        changes.append(
            f"{new.epochs} epochs instead of {old.epochs}; from here on the learning rate follows the longer schedule, "
            "so the result differs from a single long run"
        )
        changed = replace(changed, optim=replace(changed.optim, epochs=new.epochs))
    elif changes and _is_finished(run_dir):
        return existing, []
    return changed, changes


def _is_finished(run_dir: Path) -> bool:
    state = load_training_state(run_dir)
    return state is not None and state["step"] >= state["total_steps"]


def resume_identity(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as JSON data, without fields that may change between two attempts at the same run."""
    data: dict[str, Any] = to_dict(config, include=lambda field: field.metadata.get("resume") != "free")
    return data


def _remove_if_unused(run_dir: Path) -> None:
    markers = {file_lock.LOCK_FILE, files.GENERATED_MARKER}
    with contextlib.suppress(OSError):
        if {file.name for file in run_dir.iterdir()} <= markers:
            for name in markers:
                (run_dir / name).unlink(missing_ok=True)
            run_dir.rmdir()
