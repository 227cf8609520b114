"""Loggers of metrics, with fakes of the services and, where they are installed, with the services themselves."""

import importlib.util
import json
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from support.run_comparison import assert_same_weights
from support.small_pretrain import small_config, stop_at_step, train

from stillmotion.errors import StillmotionError
from stillmotion.training import loggers
from stillmotion.training.loggers import LOGGERS, check_loggers
from stillmotion.training.run_log import RunLog, load_metrics

FAKE_WANDB = """
calls = []

class Settings:
    def __init__(self, **settings): pass

class Run:
    step = 0
    def log(self, values, step): calls.append(("log", step, values))
    def finish(self, exit_code): calls.append(("finish", exit_code))

def init(**options):
    calls.append(("init", options))
    return Run()
"""


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    """A fake of the package that records its calls."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    for name in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    import wandb

    yield wandb
    sys.modules.pop("wandb")


class RecordingLogger:
    """A logger that records its metrics."""

    instances: ClassVar[list] = []

    def __init__(self, folder, config, start):
        self.config, self.start, self.logged, self.finished = config, start, [], None
        RecordingLogger.instances.append(self)

    def log_metrics(self, step, metrics):
        self.logged.append((step, dict(metrics)))

    def close(self, *, completed):
        self.finished = completed


class FailingLogger(RecordingLogger):
    """A logger whose network fails after the first step."""

    def log_metrics(self, step, metrics):
        super().log_metrics(step, metrics)
        if step > 1:
            raise ConnectionError("no route to host")


@pytest.fixture
def recording_loggers(monkeypatch):
    monkeypatch.setattr(RecordingLogger, "instances", [])
    monkeypatch.setattr(LOGGERS, "builtin", LOGGERS.builtin | {"noting": RecordingLogger, "failing": FailingLogger})
    monkeypatch.setitem(LOGGERS.__dict__, "_loaded", dict(LOGGERS.builtin))
    return RecordingLogger.instances


def test_every_logger_gets_the_rows_of_metrics_jsonl(recording_loggers, tmp_path):
    folder = train(small_config(overrides={"train.loggers": ("tensorboard", "noting")}), tmp_path / "run")
    (logger,) = recording_loggers
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [{"step": step, **values} for step, values in logger.logged] == rows
    assert logger.config == json.loads((folder / "config.json").read_text())
    assert logger.finished
    assert list((folder / "tensorboard").iterdir())


def test_without_loggers_there_are_metrics_alone(tmp_path):
    folder = train(small_config(overrides={"train.loggers": ()}), tmp_path / "run")
    assert load_metrics(folder)["lr"]
    assert not (folder / "tensorboard").exists()


def test_a_stopped_run_is_not_finished_and_goes_on_from_its_step(recording_loggers, tmp_path):
    config = small_config(overrides={"train.loggers": ("noting",)})
    with stop_at_step(1, 2):
        train(config, tmp_path / "run")
    train(config, tmp_path / "run")
    assert [(logger.start, logger.finished, [step for step, _ in logger.logged]) for logger in recording_loggers] == [
        (0, False, [1]),
        (1, True, [2]),
    ]


def test_a_logger_that_fails_is_named_once_and_the_run_goes_on(recording_loggers, tmp_path, caplog):
    config = small_config(overrides={"train.loggers": ("failing", "noting"), "optim.epochs": 2})
    failing_run = train(config, tmp_path / "run")
    output = caplog.text
    assert output.count("Logger failing failed and was disabled (no route to host)") == 1
    assert [step for step, _ in recording_loggers[0].logged] == [1, 2]
    assert [step for step, _ in recording_loggers[1].logged] == [1, 2, 3, 4]
    plain_run = train(small_config(overrides={"optim.epochs": 2}), tmp_path / "plain")
    assert_same_weights(failing_run, plain_run)


class SlowLogger(RecordingLogger):
    """A logger whose service blocks until `may_answer` is set."""

    may_answer: ClassVar[threading.Event]

    def log_metrics(self, step, metrics):
        assert SlowLogger.may_answer.wait(60)
        super().log_metrics(step, metrics)


def log_three_steps(folder: Path, before_close=lambda: None) -> None:
    with RunLog(folder, total_steps=3, loggers=("slow",)) as log:
        for step in (1, 2, 3):
            log.log_step(step, 1, {"lr": 0.1})
        before_close()


@pytest.fixture
def slow(recording_loggers, monkeypatch):
    monkeypatch.setattr(LOGGERS, "builtin", LOGGERS.builtin | {"slow": SlowLogger})
    monkeypatch.setitem(LOGGERS.__dict__, "_loaded", dict(LOGGERS.builtin))
    monkeypatch.setattr(SlowLogger, "may_answer", threading.Event(), raising=False)
    yield recording_loggers
    SlowLogger.may_answer.set()


def test_training_does_not_wait_for_a_slow_service_and_its_end_loses_nothing(slow, tmp_path, caplog):
    # All steps are logged before the service handles the first.
    log_three_steps(tmp_path, before_close=SlowLogger.may_answer.set)
    assert ([step for step, _ in slow[0].logged], slow[0].finished) == ([1, 2, 3], True)
    assert "Logger" not in caplog.text


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [("_CLOSE_SECONDS", 0.1, "did not take all metrics"), ("_MAX_WAITING_STEPS", 1, "1 steps are waiting")],
)
def test_a_service_that_never_answers_is_named_and_left(slow, tmp_path, caplog, monkeypatch, limit, value, reason):
    monkeypatch.setattr(loggers, limit, value)
    log_three_steps(tmp_path)
    assert caplog.text.count("Logger slow failed and was disabled") == 1
    assert reason in caplog.text
    assert len(load_metrics(tmp_path)["lr"]) == 3


def test_a_logger_that_cannot_be_opened_is_named_and_left(recording_loggers, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(RecordingLogger, "__init__", lambda self, *_: 1 / 0)
    with RunLog(tmp_path, total_steps=1, loggers=("noting",)) as log:
        log.log_step(1, 1, {"lr": 0.1})
    assert "Logger noting failed and was disabled (division by zero)" in caplog.text
    assert load_metrics(tmp_path) == {"lr": [(1, 0.1)]}


def test_a_missing_package_is_one_line_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        StillmotionError, match=r"needs the package mlflow, which is not installed\. Run pip install mlflow"
    ):
        train(small_config(overrides={"train.loggers": ("mlflow",)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_wandb_wrote_is_not_its_package(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(StillmotionError, match="pip install wandb"):
        check_loggers(["wandb"])


def test_a_resumed_run_goes_on_in_the_same_run_of_wandb(wandb, tmp_path):
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"optim": {"lr": 0.1}}')
    for start in (0, 1):
        with RunLog(folder, total_steps=2, start_step=start, loggers=("wandb",)) as log:
            log.log_step(start + 1, 1, {"lr": 0.1})
    first, second = (options for name, *(options, *_) in wandb.calls if name == "init")
    assert first == second | {"settings": first["settings"]}
    assert (first["project"], first["name"], first["resume"]) == ("runs", "mine", "allow")
    assert first["config"] == {"optim": {"lr": 0.1}}
    assert json.loads((folder / loggers.LOGGER_IDS_FILE).read_text()) == {"wandb": first["id"]}
    assert [call for call in wandb.calls if call[0] != "init"] == [
        ("log", 1, {"lr": 0.1}),
        ("finish", 0),
        ("log", 2, {"lr": 0.1}),
        ("finish", 0),
    ]


@pytest.mark.filterwarnings("ignore")  # of the package
def test_the_real_wandb_writes_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = small_config(overrides={"train.loggers": ("wandb",)})
    with stop_at_step(1, 2):
        train(config, tmp_path / "runs" / "mine")
    folder = train(config, tmp_path / "runs" / "mine")
    identity = json.loads((folder / loggers.LOGGER_IDS_FILE).read_text())["wandb"]
    # One folder if both attempts started in the same second.
    assert len(list((folder / "wandb").glob(f"offline-run-*-{identity}"))) in (1, 2)


@pytest.mark.filterwarnings("ignore")  # of the package
def test_the_real_mlflow_has_one_run_with_every_step(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    config = small_config(overrides={"train.loggers": ("mlflow",)})
    with stop_at_step(1, 2):
        train(config, tmp_path / "runs" / "mine")
    folder = train(config, tmp_path / "runs" / "mine")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("runs").experiment_id])
    assert run.info.run_id == json.loads((folder / loggers.LOGGER_IDS_FILE).read_text())["mlflow"]
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["optim.batch_size"] == "8"
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "lr")] == [1, 2]


def test_loggers_may_change_between_two_attempts(recording_loggers, tmp_path: Path):
    with stop_at_step(1, 2):
        train(small_config(), tmp_path / "run")
    train(small_config(overrides={"train.loggers": ("noting",)}), tmp_path / "run")
    assert [step for step, _ in recording_loggers[0].logged] == [2]


def test_a_full_disk_disables_tensorboard_without_a_traceback(tmp_path, monkeypatch, caplog) -> None:
    """TensorBoard writes in its own thread, whose traceback Python would print."""

    def fail(self, data):
        raise OSError(28, "No space left on device")

    tracebacks = []
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", fail)
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    loggers._hide_tensorboard_tracebacks.cache_clear()
    loggers.LoggerCollection(["tensorboard"], tmp_path, start_step=0).close(completed=False)
    loggers._hide_tensorboard_tracebacks.cache_clear()
    assert not tracebacks
    assert "Logger tensorboard failed and was disabled ([Errno 28] No space left on device)" in caplog.text
