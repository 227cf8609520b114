"""Where a run's numbers go beside `metrics.jsonl`: TensorBoard, Weights & Biases, MLflow, and what packages add.

Only the first rank has loggers. None has a say in the training: one that fails is named once, and left.
"""

import contextlib
import importlib.util
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from stillmotion import files
from stillmotion.config.files import FILE, flat
from stillmotion.errors import StillmotionError
from stillmotion.registry import Registry

NOTED = "loggers.json"  # in a run folder: by which id its run goes on at each service
_AT_ONCE = 100  # settings that MLflow takes in a message
_LONGEST = 500  # letters of one


class Logger(Protocol):
    """What takes a run's numbers: made with (folder, config, start), and closed at the end.

    folder: of the run. config: its settings, as in config.json. start: steps done before; those above it are told anew.
    A class whose `package` is not installed is refused before the run begins.
    """

    def numbers(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self, *, finished: bool) -> None:
        """finished: the run came to its last step."""


class TensorBoard:
    """Event files in the run's folder `tensorboard`."""

    def __init__(self, folder: Path, config: Mapping[str, Any], start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        self._board.close()


class WandB:
    """A run of Weights & Biases; a resumed run goes on in it. WANDB_MODE, WANDB_PROJECT and the like are heeded."""

    package: ClassVar[str] = "wandb"

    def __init__(self, folder: Path, config: Mapping[str, Any], start: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or re.sub(r"[/\\#?%:]", "_", _group(folder)),
            name=os.environ.get("WANDB_NAME") or _name(folder),
            id=_ids(folder).get("wandb") or _note(folder, "wandb", secrets.token_hex(8)),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings=wandb.Settings(console="off"),  # which would come between the run and its progress bar
        )

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self._run.step:  # what an earlier attempt sent, it has
            self._run.log(dict(values), step=step)

    def close(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run at MLFLOW_TRACKING_URI, in the experiment of MLFLOW_EXPERIMENT_NAME; a resumed run goes on in it."""

    package: ClassVar[str] = "mlflow"

    def __init__(self, folder: Path, config: Mapping[str, Any], start: int) -> None:
        import mlflow
        from mlflow.entities import Metric, Param

        self._client, self._metric = mlflow.MlflowClient(), Metric
        self._id = _ids(folder).get("mlflow", "")
        if self._id:
            with contextlib.suppress(mlflow.MlflowException):  # of a run that is not, or no longer, at this address
                self._client.update_run(self._id, status="RUNNING")
                return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _group(folder)
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else self._client.create_experiment(name)
        self._id = self._client.create_run(experiment, run_name=_name(folder)).info.run_id
        settings = [Param(key, str(value)[:_LONGEST]) for key, value in flat(dict(config)).items()]
        for first in range(0, len(settings), _AT_ONCE):
            self._client.log_batch(self._id, params=settings[first : first + _AT_ONCE])
        _note(folder, "mlflow", self._id)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        now = round(1000 * time.time())
        named = {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in values.items()}
        self._client.log_batch(self._id, metrics=[self._metric(k, v, now, step) for k, v in named.items()])

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


LOGGERS: Registry[Callable[[Path, Mapping[str, Any], int], Logger]] = Registry(
    "logger", "loggers", {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
)


def check_loggers(names: Sequence[str]) -> None:
    """Raises where there is no such logger, or its package is not installed."""
    for name in names:
        package = getattr(LOGGERS.named(name), "package", None)
        found = importlib.util.find_spec(package) if package else None
        if package and (found is None or found.origin is None):  # which a folder that wandb wrote has not
            raise StillmotionError(
                f"the logger {name} needs the package {package}, which is not installed: pip install {package}, or "
                f"leave {name} out of --train.loggers"
            )


class Loggers:
    """Several loggers as one. say: told of one that fails, which is then left."""

    def __init__(self, names: Sequence[str], folder: Path, *, start: int, say: Callable[[str], object]) -> None:
        self._say, self._open = say, dict[str, Logger]()
        config = json.loads((folder / FILE).read_text()) if (folder / FILE).exists() else {}
        for name in dict.fromkeys(names):
            with self._spared(name):
                self._open[name] = LOGGERS.named(name)(folder, config, start)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, logger in list(self._open.items()):
            with self._spared(name):
                logger.numbers(step, values)

    def close(self, *, finished: bool) -> None:
        for name, logger in list(self._open.items()):
            with self._spared(name):
                logger.close(finished=finished)

    @contextlib.contextmanager
    def _spared(self, name: str) -> Iterator[None]:
        """The run, from what goes wrong in somebody else's package or in the network."""
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self._say(f"the logger {name} has failed and is left ({reason}); metrics.jsonl has every number")


def _name(folder: Path) -> str:
    return folder.resolve().name


def _group(folder: Path) -> str:
    """The folder that holds the run's."""
    return folder.resolve().parent.name or "stillmotion"


def _ids(folder: Path) -> dict[str, str]:
    """The ids of this run, by service."""
    try:
        return dict(files.read_json(folder / NOTED, remedy="delete it"))
    except (OSError, ValueError, TypeError, StillmotionError):  # without them, a new run begins there
        return {}


def _note(folder: Path, service: str, identity: str) -> str:
    files.write_json(folder / NOTED, _ids(folder) | {service: identity})
    return identity
