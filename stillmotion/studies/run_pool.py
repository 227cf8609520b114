"""What a sweep asks of a transfer run: how patches find back in videos held out, distances, and masks carried on."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.torchrun import exit_with_parent
from stillmotion.encoders import FEATURE_KINDS, Encoder, load
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import FROZEN_ROW, evaluate_geometry
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import RESULTS_FILE, evaluate_linear_probe
from stillmotion.evaluation.propagation.config import SequenceDataConfig
from stillmotion.evaluation.propagation.evaluate import evaluate_propagation
from stillmotion.methods.method import Method
from stillmotion.models.input_config import InputConfig
from stillmotion.models.pretrained.frozen_image_model import ProjectedTokenBackbone, load_image_model
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.training.config import RunConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.pretrain.train_step import compute_gradients
from stillmotion.training.run_dir import config_from_dict
from stillmotion.training.run_log import load_metrics
from stillmotion.training.token_cache import TOKEN_DIR
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.device import resolve_device
from stillmotion.utils.files import ensure_dir, read_json, write_json
from stillmotion.utils.typed_config import to_dict

TRANSFER_METRICS_FILE = "transfer_metrics.json"
TOKEN_FEATURE = "tokens"  # stands where a probe has its kind of feature
_GEOMETRY_COLUMNS = ("cycle_accuracy", "inter_distance", "intra_distance", "margin")
_JF_COLUMN = "J&F"
_NUM_RESAMPLES = 20  # of intervals, which a sweep has over seeds instead


def measure_transfer_run(run_dir: Path, config: TransferConfig, eval_options: Mapping[str, Any]) -> None:
    """Measure a transfer run, and where `untrained` is asked its frozen model; writes `transfer_metrics.json`.

    eval_options: `data`, the videos for cycles and distances, and how many `videos` of them; `sequences` in DAVIS's layout at
        this `resolution`, or None.
    """
    how = GeometryConfig(
        max_videos=eval_options["videos"], image_size=config.data.image_size, n_resamples=_NUM_RESAMPLES
    )
    transferred = load(run_dir, device=config.train.device)
    geometry = evaluate_geometry([transferred], VideoDataConfig(eval_options["data"]), how).rows
    rows = {"trained": geometry[transferred.name]}
    if eval_options.get("compare_untrained"):
        rows["untrained"] = geometry[FROZEN_ROW]
    found: dict[str, dict[str, float]] = {
        name: {c: row.metrics[c].value for c in _GEOMETRY_COLUMNS} for name, row in rows.items()
    }
    if eval_options.get("sequences"):
        sequences = SequenceDataConfig(eval_options["sequences"], resolution=eval_options["resolution"])
        for name in found:
            encoder = transferred if name == "trained" else _frozen_image_encoder(config)
            propagated = evaluate_propagation(encoder, sequences, run_dir / "propagated_masks" / name)
            found[name][_JF_COLUMN] = propagated.mean[_JF_COLUMN]
    write_json(run_dir / TRANSFER_METRICS_FILE, {name: {TOKEN_FEATURE: cells} for name, cells in found.items()})


def _frozen_image_encoder(config: TransferConfig) -> Encoder:
    """The image model of a transfer run, without a projection."""
    images = load_image_model(config.image_model)
    intake = InputConfig(8, 8, config.data.image_size, images.normalization)
    return Encoder(ProjectedTokenBackbone(images), input_config=intake).to(resolve_device(config.train.device)).eval()


STEP_COST_FILE = "step_cost.json"
_TIMED_STEPS = 3  # steps, of which the quickest counts
Key = TypeVar("Key")
ConfigT = TypeVar("ConfigT", bound=RunConfig)


@dataclass(frozen=True)
class StudyRun:
    """A run folder to be, of pre-training or of transfer.

    eval_options: options of `evaluate.probe.probe`, and of its videos `data` and how many `videos` are drawn; of a transfer
        run, what `measured` takes.
    measure_cost: measure a step's time and memory, too, in pre-training.
    """

    run_dir: Path
    config: RunConfig
    eval_options: Mapping[str, Any] = field(default_factory=dict)
    measure_cost: bool = False

    def is_finished(self) -> bool:
        """Whether it is trained and probed as asked."""
        found = self.load_scores()
        if found is None or (self.eval_options.get("compare_untrained") and "untrained" not in found):
            return False
        kinds = [set(of) for of in found.values()]
        asked = set(self.eval_options.get("kinds", ()))
        if not all(asked <= of or of == {"whole"} for of in kinds):  # a network of few time steps has no halves
            return False
        return not self.measures_cost or read_json_if_valid(self.run_dir / STEP_COST_FILE) is not None

    @property
    def measures_cost(self) -> bool:
        """Whether time and memory of its steps are measured."""
        return self.measure_cost and isinstance(self.config, PretrainConfig)

    def load_scores(self) -> dict[str, dict[str, dict[str, float]]] | None:
        """Figures by network (trained, untrained), kind of feature and target; None where they are not there."""
        if isinstance(self.config, TransferConfig):
            return read_json_if_valid(self.run_dir / TRANSFER_METRICS_FILE)
        probed = read_json_if_valid(self.run_dir / RESULTS_FILE)
        if probed is None:
            return None
        return {
            network: {kind: {target: cell["top1"] for target, cell in cells.items()} for kind, cells in kinds.items()}
            for network, kinds in probed["accuracy"].items()
        }


def with_seed(config: ConfigT, seed: int) -> ConfigT:
    """The same run with another seed."""
    return replace(config, train=replace(config.train, seed=seed))


def read_json_if_valid(path: Path) -> dict[str, Any] | None:
    """Content of a JSON file; None if it is missing or damaged."""
    try:
        content: dict[str, Any] = read_json(path)
    except (OSError, StillmotionError):
        return None
    return content


def train_and_evaluate(runs: Mapping[Key, StudyRun], *, num_processes: int, format_line: Callable[[Key], str]) -> None:
    """Bring every run to its end; what an earlier attempt finished is kept, and what it began goes on.

    num_processes: runs at a time. told: the line that is printed when a run has finished.
    """
    if num_processes < 1:
        raise StillmotionError(f"num_processes is {num_processes}; it must be at least 1")
    waiting = [key for key, run in runs.items() if not run.is_finished()]
    behind = sum(run.config.optim.epochs + 1 for key, run in runs.items() if key not in waiting)
    workers = [_start_worker() for _ in range(min(num_processes, len(waiting)))]
    working: dict[int, Key] = {}
    try:
        with _progress_bar() as bar:
            task = bar.add_task("training and probing", total=sum(run.config.optim.epochs + 1 for run in runs.values()))
            while waiting or working:
                for number, worker in enumerate(workers):
                    if number in working and runs[working[number]].is_finished():
                        behind += runs[working[number]].config.optim.epochs + 1
                        bar.console.print(
                            format_line(working.pop(number)), highlight=False, markup=False, soft_wrap=True
                        )
                    if number in working and worker.poll() is not None:
                        raise StillmotionError(_failure_message(runs[working[number]].run_dir))
                    if number not in working and waiting:
                        working[number] = waiting.pop(0)
                        _send_job(worker, runs[working[number]])
                bar.update(task, completed=behind + sum(_epochs_done(runs[key]) for key in working.values()))
                time.sleep(0.2)
    finally:
        _stop_workers(workers)


def measure_step_cost(config: PretrainConfig) -> dict[str, float]:
    """CPU seconds of a training step on this thread, the least of a few, and MiB that it has allocated at its peak."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        method = Method(config.method).train()
        data = config.data
        clips = torch.randn(
            config.optim.batch_size, data.clips_per_video, 3, data.num_frames, data.image_size, data.image_size
        )
        seconds = []
        for _ in range(_TIMED_STEPS):
            start = time.process_time()
            compute_gradients(method, clips, config)
            seconds.append(time.process_time() - start)
        with FlopMemoryCounter() as counter:
            compute_gradients(method, clips, config)
        return {"seconds": min(seconds), "memory": counter.peak_bytes / 2**20}


def _start_worker() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "stillmotion.studies.run_pool"]
    one_core = os.environ | {"OMP_NUM_THREADS": "1"}
    # A session of its own: Ctrl-C is the parent's, which ends its workers in good order.
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=one_core, start_new_session=True)


def _send_job(worker: "subprocess.Popen[bytes]", run: StudyRun) -> None:
    (ensure_dir(run.run_dir) / "log.txt").write_text("")
    order = {
        "folder": str(run.run_dir),
        "config": to_dict(run.config),
        "probe": dict(run.eval_options),
        "cost": run.measure_cost,
    }
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        worker.stdin.flush()
    except BrokenPipeError:  # it died; whoever polls it says so
        worker.wait()


def _stop_workers(workers: "list[subprocess.Popen[bytes]]") -> None:
    for worker in workers:
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.close()
    for worker in workers:
        try:
            worker.wait(60)
        except subprocess.TimeoutExpired:
            worker.kill()


def _failure_message(run_dir: Path) -> str:
    lines = (run_dir / "log.txt").read_text().strip().splitlines()
    reason = lines[-1].removeprefix("stillmotion: ") if lines else "it left no word"
    return f"the run {run_dir} failed: {reason} ({run_dir / 'log.txt'} has more)"


def _epochs_done(run: StudyRun) -> float:
    """How many a run has behind it."""
    return load_metrics(run.run_dir).get("epoch", [(0, 0.0)])[-1][1]


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _worker_main() -> None:
    """Do what the lines of standard input ask for."""
    orders: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        if busy.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # a training saves itself

    exit_with_parent()  # within seconds, even where a step or a probe takes longer
    busy = threading.Event()
    threading.Thread(target=listen, daemon=True).start()
    while (order := orders.get()) is not None:
        busy.set()
        asked = json.loads(order)
        folder = Path(asked["folder"])
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        try:
            _run_job(StudyRun(folder, config_from_dict(asked["config"]), asked["probe"], asked["cost"]))
        except StillmotionError as error:
            print(f"stillmotion: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        busy.clear()


def _run_job(run: StudyRun) -> None:
    try:
        if isinstance(run.config, TransferConfig):
            transfer(run.config, run.run_dir, cache_dir=run.run_dir.parent / TOKEN_DIR)
            if not run.is_finished():
                measure_transfer_run(run.run_dir, run.config, run.eval_options)
            return
        assert isinstance(run.config, PretrainConfig)
        pretrain(run.config, run.run_dir)
    except Interrupted as stop:
        raise SystemExit(str(stop)) from None
    if run.measure_cost and read_json_if_valid(run.run_dir / STEP_COST_FILE) is None:
        write_json(run.run_dir / STEP_COST_FILE, measure_step_cost(run.config))
    if not run.is_finished():
        asked = dict(run.eval_options)
        halves = TrainTestConfig(
            asked.pop("data", "synthetic"), num_synthetic=asked.pop("videos", TrainTestConfig.num_synthetic)
        )
        kinds, alone = (
            asked.pop("kinds", FEATURE_KINDS),
            LoaderConfig(num_workers=0),
        )  # a core for each run, and no decoders beside it
        evaluate_linear_probe(
            load(run.run_dir, device="auto"), halves, LinearProbeConfig(**asked), feature_kinds=kinds, loader=alone
        )


if __name__ == "__main__":
    _worker_main()
