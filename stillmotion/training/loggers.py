"""Where a run's numbers go beside `metrics.jsonl`: TensorBoard, Weights & Biases, MLflow, and what packages add.

Only the first rank has loggers. None has a say in the training: one that fails is named once, and left.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import CONFIG_FILE
from stillmotion.utils import files
from stillmotion.utils.registry import Registry
from stillmotion.utils.typed_config import flatten_config

LOGGER_IDS_FILE = "logger_ids.json"  # in a run folder: by which id its run goes on at each service
_PARAMS_PER_REQUEST = 100  # settings that MLflow takes in a message
_MAX_PARAM_LENGTH = 500  # letters of one


class Logger(Protocol):
    """What takes a run's numbers: made with (folder, config, start), and closed at the end.

    folder: of the run. config: its settings, as in config.json. start: steps done before; those above it are told anew.
    A class whose `package` is not installed is refused before the run begins.
    """

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, *, completed: bool) -> None:
        """finished: the run came to its last step."""


class TensorBoardLogger:
    """Event files in the run's folder `tensorboard`."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=start_step + 1)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._board.add_scalar(name, value, step)

    def close(self, *, completed: bool) -> None:
        self._board.close()


class WandbLogger:
    """A run of Weights & Biases; a resumed run goes on in it. WANDB_MODE, WANDB_PROJECT and the like are heeded."""

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
            settings=wandb.Settings(console="off"),  # which would come between the run and its progress bar
        )

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        if step >= self._run.step:  # what an earlier attempt sent, it has
            self._run.log(dict(metrics), step=step)

    def close(self, *, completed: bool) -> None:
        self._run.finish(exit_code=0 if completed else 1)


class MLflowLogger:
    """A run at MLFLOW_TRACKING_URI, in the experiment of MLFLOW_EXPERIMENT_NAME; a resumed run goes on in it."""

    package: ClassVar[str] = "mlflow"

    def __init__(self, run_dir: Path, config: Mapping[str, Any], start_step: int) -> None:
        import mlflow
        from mlflow.entities import Metric, Param

        self._client, self._metric = mlflow.MlflowClient(), Metric
        self._id = _load_run_ids(run_dir).get("mlflow", "")
        if self._id:
            with contextlib.suppress(mlflow.MlflowException):  # of a run that is not, or no longer, at this address
                self._client.update_run(self._id, status="RUNNING")
                return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _project_name(run_dir)
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else self._client.create_experiment(name)
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
    """Raises where there is no such logger, or its package is not installed."""
    for name in names:
        package = getattr(LOGGERS.lookup(name), "package", None)
        found = importlib.util.find_spec(package) if package else None
        if package and (found is None or found.origin is None):  # which a folder that wandb wrote has not
            raise StillmotionError(
                f"the logger {name} needs the package {package}, which is not installed: pip install {package}, or "
                f"leave {name} out of --train.loggers"
            )


class LoggerCollection:
    """Several loggers as one. say: told of one that fails, which is then left."""

    def __init__(
        self, names: Sequence[str], run_dir: Path, *, start_step: int, on_failure: Callable[[str], object]
    ) -> None:
        self._say, self._open = on_failure, dict[str, Logger]()
        config = files.read_json(run_dir / CONFIG_FILE) if (run_dir / CONFIG_FILE).exists() else {}
        for name in dict.fromkeys(names):
            with self._isolate_failure(name):
                self._open[name] = LOGGERS.lookup(name)(run_dir, config, start_step)

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, logger in list(self._open.items()):
            with self._isolate_failure(name):
                logger.log_metrics(step, metrics)

    def close(self, *, completed: bool) -> None:
        for name, logger in list(self._open.items()):
            with self._isolate_failure(name):
                logger.close(completed=completed)

    @contextlib.contextmanager
    def _isolate_failure(self, name: str) -> Iterator[None]:
        """The run, from what goes wrong in somebody else's package or in the network."""
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self._say(f"the logger {name} has failed and is left ({reason}); metrics.jsonl has every number")


def _run_name(run_dir: Path) -> str:
    return run_dir.resolve().name


def _project_name(run_dir: Path) -> str:
    """The folder that holds the run's."""
    return run_dir.resolve().parent.name or "stillmotion"


def _load_run_ids(run_dir: Path) -> dict[str, str]:
    """The ids of this run, by service."""
    try:
        return dict(files.read_json(run_dir / LOGGER_IDS_FILE, hint="delete it"))
    except (OSError, ValueError, TypeError, StillmotionError):  # without them, a new run begins there
        return {}


def _save_run_id(run_dir: Path, service: str, identity: str) -> str:
    files.write_json(run_dir / LOGGER_IDS_FILE, _load_run_ids(run_dir) | {service: identity})
    return identity
