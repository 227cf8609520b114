"""Metric loggers besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow, and loggers of plugins.

Only the first rank has loggers. They do not affect training: each works in a thread of its own, and a logger that fails
is reported once and disabled.
"""

import contextlib
import functools
import importlib.util
import logging
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import CONFIG_FILE
from stillmotion.utils import files
from stillmotion.utils.registry import Registry
from stillmotion.utils.typed_config import flatten_config

LOGGER_IDS_FILE = "logger_ids.json"  # ids of the run at each service
_PARAMS_PER_REQUEST = 100  # limit of MLflow
_MAX_PARAM_LENGTH = 500  # limit of MLflow, in characters
_MAX_WAITING_STEPS = 10_000  # that a logger has not taken yet
_CLOSE_SECONDS = 120.0  # for which the end of a run waits for a logger
messages = logging.getLogger(__name__)


class Logger(Protocol):
    """Protocol of a metric logger, constructed with (run_dir, config, start_step).

    `config` is the contents of config.json. Metrics of steps above `start_step` are logged again by a resumed run. A
    class attribute `package` names a package that must be installed. The methods are called in one thread, which is not
    that of the training loop.
    """

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step.

        Args:
            step: Number of the step.
            metrics: Metrics by name.
        """

    def close(self, *, completed: bool) -> None:
        """Close the logger.

        Args:
            completed: Whether the last step was reached.
        """


class TensorBoardLogger:
    """Writes event files to `tensorboard/` in the run directory."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        _hide_tensorboard_tracebacks()
        self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=start_step + 1)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._board.add_scalar(name, value, step)

    def close(self, *, completed: bool) -> None:
        self._board.close()


@functools.cache
def _hide_tensorboard_tracebacks() -> None:
    """Print no traceback of TensorBoard's writing thread; its error is raised again by the next call."""
    print_traceback = threading.excepthook

    def print_others(details: threading.ExceptHookArgs) -> None:
        if not type(details.thread).__module__.startswith("tensorboard."):
            print_traceback(details)

    threading.excepthook = print_others


class WandbLogger:
    """Logs to Weights & Biases; a resumed run continues its W&B run. Respects WANDB_* variables."""

    package: ClassVar[str] = "wandb"

    def __init__(self, run_dir: Path, config: Mapping[str, Any], start_step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or re.sub(r"[/\\#?%:]", "_", _project_name(run_dir)),
            name=os.environ.get("WANDB_NAME") or _run_name(run_dir),
            id=_load_run_ids(run_dir).get("wandb") or _save_run_id(run_dir, "wandb", secrets.token_hex(8)),
            resume="allow",
            dir=str(run_dir),
            config=dict(config),
            settings=wandb.Settings(console="off"),  # else it breaks the progress bar
        )

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self._run.step:  # earlier steps were sent before the run was resumed
            self._run.log(dict(metrics), step=step)

    def close(self, *, completed: bool) -> None:
        self._run.finish(exit_code=0 if completed else 1)


class MLflowLogger:
    """Logs to MLFLOW_TRACKING_URI, experiment MLFLOW_EXPERIMENT_NAME; a resumed run continues its MLflow run."""

    package: ClassVar[str] = "mlflow"

    def __init__(self, run_dir: Path, config: Mapping[str, Any], start_step: int) -> None:
        import mlflow
        from mlflow.entities import Metric, Param

        self._client, self._metric = mlflow.MlflowClient(), Metric
        self._id = _load_run_ids(run_dir).get("mlflow", "")
        if self._id:
            with contextlib.suppress(mlflow.MlflowException):  # the run does not exist at this address
                self._client.update_run(self._id, status="RUNNING")
                return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _project_name(run_dir)
        existing = self._client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else self._client.create_experiment(name)
        self._id = self._client.create_run(experiment, run_name=_run_name(run_dir)).info.run_id
        settings = [Param(key, str(value)[:_MAX_PARAM_LENGTH]) for key, value in flatten_config(dict(config)).items()]
        for first in range(0, len(settings), _PARAMS_PER_REQUEST):
            self._client.log_batch(self._id, params=settings[first : first + _PARAMS_PER_REQUEST])
        _save_run_id(run_dir, "mlflow", self._id)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        now = round(1000 * time.time())
        named = {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in metrics.items()}
        self._client.log_batch(self._id, metrics=[self._metric(k, v, now, step) for k, v in named.items()])

    def close(self, *, completed: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if completed else "KILLED")


LOGGERS: Registry[Callable[[Path, Mapping[str, Any], int], Logger]] = Registry(
    "logger", "loggers", {"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "mlflow": MLflowLogger}
)


def check_loggers(names: Sequence[str]) -> None:
    """Raise if a logger is unknown or its package is not installed."""
    for name in names:
        package = getattr(LOGGERS.lookup(name), "package", None)
        spec = importlib.util.find_spec(package) if package else None
        if package and (spec is None or spec.origin is None):  # a directory written by wandb has no origin
            raise StillmotionError(
                f"Logger {name} needs the package {package}, which is not installed. Run pip install {package}, or "
                f"remove {name} from --train.loggers."
            )


class LoggerCollection:
    """Forwards metrics to several loggers, each in a thread of its own; a logger that fails is disabled.

    Args:
        names: Names of the loggers.
        run_dir: The run directory.
        start_step: Steps done before.
    """

    def __init__(self, names: Sequence[str], run_dir: Path, *, start_step: int) -> None:
        self._threads: list[_LoggerThread] = []
        config = files.read_json(run_dir / CONFIG_FILE) if (run_dir / CONFIG_FILE).exists() else {}
        for name in dict.fromkeys(names):
            try:
                self._threads.append(_LoggerThread(name, LOGGERS.lookup(name)(run_dir, config, start_step)))
            except Exception as error:
                _warn_disabled(name, error)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass the metrics of a step to all loggers, without waiting for them.

        Args:
            step: Number of the step.
            metrics: Metrics by name.
        """
        for thread in self._threads:
            thread.log_metrics(step, dict(metrics))

    def close(self, *, completed: bool) -> None:
        """Close all loggers when they have taken all metrics, or after two minutes.

        Args:
            completed: Whether the last step was reached.
        """
        for thread in self._threads:
            thread.request_close(completed=completed)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(deadline)


class _LoggerThread:
    """Calls a logger in a thread, because a service may answer slowly or not at all."""

    def __init__(self, name: str, logger: Logger) -> None:
        self._name, self._logger, self._is_disabled = name, logger, False
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None is the end
        self._thread = threading.Thread(target=self._run, name=f"logger {name}", daemon=True)
        self._thread.start()

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        if self._calls.qsize() >= _MAX_WAITING_STEPS:
            self._disable(TimeoutError(f"{_MAX_WAITING_STEPS} steps are waiting"))
        if not self._is_disabled:
            self._calls.put(lambda: self._logger.log_metrics(step, metrics))

    def request_close(self, *, completed: bool) -> None:
        self._calls.put(lambda: self._logger.close(completed=completed))
        self._calls.put(None)

    def join(self, deadline: float) -> None:
        if not self._is_disabled:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._disable(TimeoutError(f"it did not take all metrics within {_CLOSE_SECONDS:g} seconds"))

    def _run(self) -> None:
        while not self._is_disabled and (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                self._disable(error)

    def _disable(self, error: Exception) -> None:
        if not self._is_disabled:
            self._is_disabled = True
            _warn_disabled(self._name, error)


def _warn_disabled(name: str, error: Exception) -> None:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    messages.warning("Logger %s failed and was disabled (%s). All metrics are in metrics.jsonl.", name, reason)


def _run_name(run_dir: Path) -> str:
    return run_dir.resolve().name


def _project_name(run_dir: Path) -> str:
    return run_dir.resolve().parent.name or "stillmotion"


def _load_run_ids(run_dir: Path) -> dict[str, str]:
    try:
        return dict(files.read_json(run_dir / LOGGER_IDS_FILE, hint="delete it"))
    except (OSError, ValueError, TypeError, StillmotionError):  # a new run is started at the service
        return {}


def _save_run_id(run_dir: Path, service: str, identity: str) -> str:
    files.write_json(run_dir / LOGGER_IDS_FILE, _load_run_ids(run_dir) | {service: identity})
    return identity
