"""Where a run's numbers go: stand-ins for the services, and the services themselves where they are installed."""

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

WANDB = """
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
    """A stand-in for the package, which notes what it is asked."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    for name in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    import wandb

    yield wandb
    sys.modules.pop("wandb")


class Noting:
    """A logger that keeps what it is told."""

    made: ClassVar[list] = []

    def __init__(self, folder, config, start):
        self.config, self.start, self.logged, self.finished = config, start, [], None
        Noting.made.append(self)

    def log_metrics(self, step, metrics):
        self.logged.append((step, dict(metrics)))

    def close(self, *, completed):
        self.finished = completed


class Failing(Noting):
    """A logger whose network is gone after a step."""

    def log_metrics(self, step, metrics):
        super().log_metrics(step, metrics)
        if step > 1:
            raise ConnectionError("no route to host")


@pytest.fixture
def noting(monkeypatch):
    monkeypatch.setattr(Noting, "made", [])
    monkeypatch.setattr(LOGGERS, "builtin", LOGGERS.builtin | {"noting": Noting, "failing": Failing})
    monkeypatch.setitem(LOGGERS.__dict__, "_loaded", dict(LOGGERS.builtin))
    return Noting.made


def test_every_logger_is_told_what_metrics_jsonl_holds(noting, tmp_path):
    folder = train(small_config(overrides={"train.loggers": ("tensorboard", "noting")}), tmp_path / "run")
    (one,) = noting
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [{"step": step, **values} for step, values in one.logged] == rows
    assert one.config == json.loads((folder / "config.json").read_text())
    assert one.finished
    assert list((folder / "tensorboard").iterdir())


def test_without_loggers_there_are_metrics_alone(tmp_path):
    folder = train(small_config(overrides={"train.loggers": ()}), tmp_path / "run")
    assert load_metrics(folder)["lr"]
    assert not (folder / "tensorboard").exists()


def test_a_stopped_run_is_not_finished_and_goes_on_from_its_step(noting, tmp_path):
    config = small_config(overrides={"train.loggers": ("noting",)})
    with stop_at_step(1, 2):
        train(config, tmp_path / "run")
    train(config, tmp_path / "run")
    assert [(one.start, one.finished, [step for step, _ in one.logged]) for one in noting] == [
        (0, False, [1]),
        (1, True, [2]),
    ]


def test_a_logger_that_fails_is_named_once_and_the_run_goes_on(noting, tmp_path, caplog):
    config = small_config(overrides={"train.loggers": ("failing", "noting"), "optim.epochs": 2})
    failed = train(config, tmp_path / "run")
    output = caplog.text
    assert output.count("Logger failing failed and was disabled (no route to host)") == 1
    assert [step for step, _ in noting[0].logged] == [1, 2]
    assert [step for step, _ in noting[1].logged] == [1, 2, 3, 4]
    plain = train(small_config(overrides={"optim.epochs": 2}), tmp_path / "plain")
    assert_same_weights(failed, plain)


class Slow(Noting):
    """A logger whose service answers when it may."""

    may_answer: ClassVar[threading.Event]

    def log_metrics(self, step, metrics):
        assert Slow.may_answer.wait(60)
        super().log_metrics(step, metrics)


def log_three_steps(folder: Path, between=lambda: None) -> None:
    with RunLog(folder, total_steps=3, loggers=("slow",)) as log:
        for step in (1, 2, 3):
            log.log_step(step, 1, {"lr": 0.1})
        between()


@pytest.fixture
def slow(noting, monkeypatch):
    monkeypatch.setattr(LOGGERS, "builtin", LOGGERS.builtin | {"slow": Slow})
    monkeypatch.setitem(LOGGERS.__dict__, "_loaded", dict(LOGGERS.builtin))
    monkeypatch.setattr(Slow, "may_answer", threading.Event(), raising=False)
    yield noting
    Slow.may_answer.set()


def test_training_does_not_wait_for_a_slow_service_and_its_end_loses_nothing(slow, tmp_path, caplog):
    log_three_steps(tmp_path, between=Slow.may_answer.set)  # the steps are over before the service answers the first
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


def test_a_logger_that_cannot_be_opened_is_named_and_left(noting, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(Noting, "__init__", lambda self, *_: 1 / 0)
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
    first, second = (options for what, *(options, *_) in wandb.calls if what == "init")
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


@pytest.mark.filterwarnings("ignore")  # its own
def test_the_real_wandb_writes_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = small_config(overrides={"train.loggers": ("wandb",)})
    with stop_at_step(1, 2):
        train(config, tmp_path / "runs" / "mine")
    folder = train(config, tmp_path / "runs" / "mine")
    identity = json.loads((folder / loggers.LOGGER_IDS_FILE).read_text())["wandb"]
    assert len(list((folder / "wandb").glob(f"offline-run-*-{identity}"))) in (1, 2)  # one where both began in a second


@pytest.mark.filterwarnings("ignore")  # its own
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
    assert [one.step for one in client.get_metric_history(run.info.run_id, "lr")] == [1, 2]


def test_loggers_may_change_between_two_attempts(noting, tmp_path: Path):
    with stop_at_step(1, 2):
        train(small_config(), tmp_path / "run")
    train(small_config(overrides={"train.loggers": ("noting",)}), tmp_path / "run")
    assert [step for step, _ in noting[0].logged] == [2]


def test_a_full_disk_disables_tensorboard_without_a_traceback(tmp_path, monkeypatch, caplog) -> None:
    """TensorBoard writes in a thread of its own, whose traceback Python would print."""

    def fail(self, data):
        raise OSError(28, "No space left on device")

    printed = []
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", fail)
    monkeypatch.setattr(threading, "excepthook", printed.append)
    loggers._hide_tensorboard_tracebacks.cache_clear()
    loggers.LoggerCollection(["tensorboard"], tmp_path, start_step=0).close(completed=False)
    loggers._hide_tensorboard_tracebacks.cache_clear()
    assert not printed
    assert "Logger tensorboard failed and was disabled ([Errno 28] No space left on device)" in caplog.text
