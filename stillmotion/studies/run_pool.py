"""Train and evaluate many runs of pre-training or transfer in worker processes."""

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
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
from stillmotion.models.pretrained.frozen_image_model import load_image_model
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.training.config import RunConfig
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.pretrain.token_cache import TOKEN_DIR
from stillmotion.training.run_log import load_metrics
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.task import transfer
from stillmotion.utils.device import resolve_device
from stillmotion.utils.files import ensure_dir, read_json, write_json
from stillmotion.utils.progress import report_progress
from stillmotion.utils.worker_processes import WorkerDied, run_in_processes

logger = logging.getLogger(__name__)
TRANSFER_METRICS_FILE = "transfer_metrics.json"
STEP_COST_FILE = "step_cost.json"
LOG_FILE = "log.txt"
TOKEN_FEATURE = "tokens"  # feature kind of a transfer run's metrics
_GEOMETRY_COLUMNS = ("cycle_accuracy", "inter_distance", "intra_distance", "margin")
# Scores of label propagation by data set; PCK for others.
_PROPAGATION_COLUMNS = {"davis": ("J&F",), "vip": ("mIoU",)}
_NUM_RESAMPLES = 20  # of bootstrap intervals; a sweep has intervals over seeds instead
_TIMED_STEPS = 3  # steps, of which the fastest counts
_GRACE_SECONDS = 60.0  # for a stopped run to save itself
_PROGRESS_SECONDS = 0.5  # between two updates of the progress
Key = TypeVar("Key")
ConfigT = TypeVar("ConfigT", bound=RunConfig)


@dataclass(frozen=True)
class StudyRun:
    """A run of pre-training or transfer with its evaluation.

    Args:
        run_dir: Run folder.
        config: Config of the run.
        eval_options: Options of `LinearProbeConfig`, `data`, number of `videos`, feature `kinds`, and `static_dynamic`
            to decompose features otherwise than in training; for a transfer run, the options of
            `evaluate_transfer_run`.
        measure_cost: Also measure time and memory of a pre-training step.
    """

    run_dir: Path
    config: RunConfig
    eval_options: Mapping[str, Any] = field(default_factory=dict)
    measure_cost: bool = False

    def is_finished(self) -> bool:
        """Return whether the run is trained and evaluated as requested."""
        scores = self.load_scores()
        if scores is None or (self.eval_options.get("compare_untrained") and "untrained" not in scores):
            return False
        requested = set(self.eval_options.get("kinds", ()))
        # A network with few time steps has no components.
        if not all(requested <= set(kinds) or set(kinds) == {"whole"} for kinds in scores.values()):
            return False
        return not self.measures_cost or _read_json_if_intact(self.run_dir / STEP_COST_FILE) is not None

    @property
    def measures_cost(self) -> bool:
        """Whether time and memory of a step are measured."""
        return self.measure_cost and isinstance(self.config, PretrainConfig)

    def load_scores(self) -> dict[str, dict[str, dict[str, float]]] | None:
        """Load scores by network (pretrained, untrained), feature kind and target; None if there are none yet."""
        if isinstance(self.config, TransferConfig):
            return _read_json_if_intact(self.run_dir / TRANSFER_METRICS_FILE)
        probe = _read_json_if_intact(self.run_dir / RESULTS_FILE)
        if probe is None:
            return None
        return {
            network: {kind: {target: cell["top1"] for target, cell in cells.items()} for kind, cells in kinds.items()}
            for network, kinds in probe["accuracy"].items()
        }


def with_seed(config: ConfigT, seed: int) -> ConfigT:
    """Return the config with another seed.

    Args:
        config: Config of a run.
        seed: Seed.
    """
    return replace(config, train=replace(config.train, seed=seed))


def _read_json_if_intact(file: Path) -> dict[str, Any] | None:
    """Return the contents of a JSON file; None if it is missing or damaged."""
    try:
        contents: dict[str, Any] = read_json(file)
    except (OSError, StillmotionError):
        return None
    return contents


def train_and_evaluate(runs: Mapping[Key, StudyRun], *, num_processes: int, format_line: Callable[[Key], str]) -> None:
    """Train and evaluate all runs; finished ones are kept, and interrupted ones are resumed.

    Args:
        runs: Runs by key.
        num_processes: Number of parallel runs, one CPU core each.
        format_line: Line that is logged when the run of a key has finished.

    Raises:
        StillmotionError: A run failed.
    """
    if num_processes < 1:
        raise StillmotionError(f"num_processes is {num_processes}; it must be at least 1")
    pending = {run.run_dir: key for key, run in runs.items() if not run.is_finished()}
    jobs = [runs[key] for key in pending.values()]
    with (
        _reported_progress(list(runs.values())),
        closing(run_in_processes(_run_job, jobs, num_processes, grace_seconds=_GRACE_SECONDS)) as results,
    ):
        for run, result in results:
            if isinstance(result, WorkerDied):
                raise StillmotionError(f"the run {run.run_dir} failed: {result} ({run.run_dir / LOG_FILE} has more)")
            logger.info("%s", format_line(pending[run.run_dir]))


@contextmanager
def _reported_progress(runs: Sequence[StudyRun]) -> Iterator[None]:
    """Report the epochs of all runs while the context is open; an evaluation counts as one epoch."""
    stopped = threading.Event()
    total = sum(run.config.optim.epochs + 1 for run in runs)

    def report() -> None:
        while not stopped.wait(_PROGRESS_SECONDS):
            report_progress(int(sum(_epochs_done(run) for run in runs)), total)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _epochs_done(run: StudyRun) -> float:
    if run.is_finished():
        return run.config.optim.epochs + 1
    return load_metrics(run.run_dir).get("epoch", [(0, 0.0)])[-1][1] if run.run_dir.is_dir() else 0.0


def measure_step_cost(config: PretrainConfig) -> dict[str, float]:
    """Measure a training step on one thread: its CPU seconds, the least of a few, and its peak MiB.

    Args:
        config: Config of the run.
    """
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


def _run_job(run: StudyRun) -> None:
    """Train and evaluate a run in a worker process, whose output goes to the run's log file."""
    log = os.open(ensure_dir(run.run_dir) / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        with threadpool_limits(1):
            _train_and_evaluate_run(run)
    except Interrupted as stop:
        raise SystemExit(str(stop)) from None
    except Exception as error:
        traceback.print_exc()
        reason = str(error).strip() or type(error).__name__
        raise StillmotionError(f"the run {run.run_dir} failed: {reason} ({run.run_dir / LOG_FILE} has more)") from None


def _train_and_evaluate_run(run: StudyRun) -> None:
    if isinstance(run.config, TransferConfig):
        transfer(run.config, run.run_dir, cache_dir=run.run_dir.parent / TOKEN_DIR)
        if not run.is_finished():
            evaluate_transfer_run(run.run_dir, run.config, run.eval_options)
        return
    assert isinstance(run.config, PretrainConfig)
    pretrain(run.config, run.run_dir)
    if run.measure_cost and _read_json_if_intact(run.run_dir / STEP_COST_FILE) is None:
        write_json(run.run_dir / STEP_COST_FILE, measure_step_cost(run.config))
    if run.is_finished():
        return
    options = dict(run.eval_options)
    num_videos = options.pop("videos", TrainTestConfig.num_synthetic)
    videos = TrainTestConfig(options.pop("data", "synthetic"), num_synthetic=num_videos)
    kinds = options.pop("kinds", FEATURE_KINDS)
    encoder = load(run.run_dir, device="auto")
    encoder.static_dynamic = options.pop("static_dynamic", encoder.static_dynamic)
    evaluate_linear_probe(
        encoder,
        videos,
        LinearProbeConfig(**options),
        feature_kinds=kinds,
        loader=LoaderConfig(num_workers=0),  # one core per run
    )


def evaluate_transfer_run(run_dir: Path, config: TransferConfig, eval_options: Mapping[str, Any]) -> None:
    """Evaluate a finished transfer run, and its frozen image model if requested; write `transfer_metrics.json`.

    Args:
        run_dir: Run folder.
        config: Config of the run.
        eval_options: `data`, the videos for cycle accuracy and distances, and their number `videos`; `sequences` in
            a `sequence_layout` (DAVIS at a `resolution`), or None; `compare_untrained` for the frozen model.
    """
    options = GeometryConfig(
        max_videos=eval_options["videos"], image_size=config.data.image_size, n_resamples=_NUM_RESAMPLES
    )
    transferred = load(run_dir, device=config.train.device)
    geometry = evaluate_geometry([transferred], VideoDataConfig(eval_options["data"]), options).rows
    rows = {"pretrained": geometry[transferred.name]}
    if eval_options.get("compare_untrained"):
        rows["untrained"] = geometry[FROZEN_ROW]
    metrics: dict[str, dict[str, float]] = {
        name: {column: row.metrics[column].value for column in _GEOMETRY_COLUMNS} for name, row in rows.items()
    }
    if eval_options.get("sequences"):
        layout = eval_options.get("sequence_layout", "davis")
        sequences = SequenceDataConfig(eval_options["sequences"], layout, resolution=eval_options["resolution"])
        columns = _PROPAGATION_COLUMNS.get(layout, ("PCK@0.1", "PCK@0.2"))
        for name in metrics:
            encoder = transferred if name == "pretrained" else _frozen_image_encoder(config)
            propagated = evaluate_propagation(encoder, sequences, run_dir / "propagated_masks" / name)
            metrics[name] |= {column: propagated.mean[column] for column in columns}
    write_json(run_dir / TRANSFER_METRICS_FILE, {name: {TOKEN_FEATURE: cells} for name, cells in metrics.items()})


def _frozen_image_encoder(config: TransferConfig) -> Encoder:
    """Return the image model of a transfer run, without a projection."""
    image_model = load_image_model(config.image_model)
    input_config = InputConfig(8, 8, config.data.image_size, image_model.normalization)
    encoder = Encoder(image_model, input_config=input_config)
    return encoder.to(resolve_device(config.train.device)).eval()
