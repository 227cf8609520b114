"""`study confounding`: what a network learns if two factors are confounded (BOD-VCL, §5.5, Figures 6 and 7).

A two-stream network is trained with InfoNCE on the sum of its streams (unified) or on each stream by itself
(decoupled), on synthetic videos of four factors. The two runs of a setting and seed share their videos and are one job
of a worker process; every run is a file, so that an interrupted study can be resumed.
"""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from stillmotion.errors import StillmotionError
from stillmotion.studies.confounding.experiment import (
    CONFOUNDED_PAIRS,
    LOSSES,
    ConfoundingConfig,
    build_probe_clips,
    build_train_clips,
    train_two_stream,
)
from stillmotion.studies.confounding.hypotheses import evaluate_hypotheses
from stillmotion.studies.confounding.report import write_confounding_page
from stillmotion.utils.files import ensure_dir, read_json, write_json
from stillmotion.utils.progress import report_progress
from stillmotion.utils.worker_processes import WorkerDied, run_in_processes

logger = logging.getLogger(__name__)
RESULTS_FILE = "results.json"


def run_confounding_study(
    output_dir: str | Path,
    study_config: ConfoundingConfig | None = None,
    *,
    num_seeds: int = 3,
    num_processes: int = 1,
) -> dict[str, Any]:
    """Run the confounding study: train and probe a network for every setting, loss and seed, and write a report.

    Args:
        output_dir: Folder; runs of the same study that it holds are kept.
        study_config: Config of the study.
        num_seeds: Runs per setting and loss.
        num_processes: Number of parallel jobs, one CPU core each.

    Returns:
        The results.

    Raises:
        StillmotionError: The folder holds another study, or a run failed.
    """
    study_config, folder = study_config or ConfoundingConfig(), Path(output_dir)
    if num_seeds < 1 or num_processes < 1:
        raise StillmotionError(f"num_seeds {num_seeds} and num_processes {num_processes} must be at least 1")
    _open_study_dir(folder, study_config)
    keys = [(s, loss, seed) for seed in range(num_seeds) for s in CONFOUNDED_PAIRS for loss in LOSSES]
    files = {key: run_result_path(folder, *key) for key in keys}
    jobs = list(dict.fromkeys((key[0], key[2]) for key in keys if not files[key].exists()))
    with closing(run_in_processes(_Trainer(folder, study_config).train, jobs, num_processes)) as results:
        for (setting, seed), lines in results:
            if isinstance(lines, WorkerDied):
                raise StillmotionError(f"the runs of {setting} with seed {seed} failed: {lines}")
            for line in lines:
                logger.info("%s", line)
            report_progress(sum(file.exists() for file in files.values()), len(files))
    runs = [read_json(file) for file in files.values()]
    results_dict = {
        "config": _to_json_dict(study_config),
        "confounded_pairs": {name: list(pairs) for name, pairs in CONFOUNDED_PAIRS.items()},
        "classes": study_config.factor_classes,
        "chance": {factor: 1 / len(names) for factor, names in study_config.factor_classes.items()},
        "runs": runs,
        "hypotheses": evaluate_hypotheses(runs),
        "cpu_seconds": round(sum(run["seconds"] for run in runs), 1),
    }
    write_json(folder / RESULTS_FILE, results_dict)
    write_confounding_page(folder, results_dict)
    return results_dict


def format_confounding_results(results: Mapping[str, Any]) -> list[str]:
    """Format the verdict on each hypothesis as lines for a terminal.

    Args:
        results: What `run_confounding_study` returned.
    """
    verdicts = {True: "supported    ", False: "not supported"}
    return [
        f"{verdicts[bool(p['supported'])]}  {p['setting']:<16}  {p['claim']}: {p['observed']}"
        for p in results["hypotheses"]
    ]


def run_result_path(output_dir: Path, setting: str, loss: str, seed: int) -> Path:
    """Return the file of a run's results.

    Args:
        output_dir: Folder of the study.
        setting: Name of the confounded pairs.
        loss: Name of the loss.
        seed: Seed.
    """
    return output_dir / "runs" / f"{setting.replace('=', '-')}-{loss}-{seed}.json"


@dataclass(frozen=True)
class _Trainer:
    output_dir: Path
    config: ConfoundingConfig

    def train(self, job: tuple[str, int]) -> list[str]:
        """Train with both losses on the same videos, and return a line about each run; called in a worker process."""
        setting, seed = job
        files = {loss: run_result_path(self.output_dir, setting, loss, seed) for loss in LOSSES}
        lines = []
        with threadpool_limits(1):  # the linear algebra of the probes has threads of its own
            clips = build_train_clips(self.config, setting, seed)
            for loss in [loss for loss, file in files.items() if not file.exists()]:
                started = time.process_time()
                run = train_two_stream(self.config, clips, build_probe_clips(self.config), loss=loss, seed=seed)
                run = {"setting": setting} | run | {"seconds": round(time.process_time() - started, 1)}
                write_json(files[loss], run)
                accuracy = "  ".join(f"{f} {run['untrained'][f]:.2f} → {v:.2f}" for f, v in run["accuracy"].items())
                lines.append(f"{setting:<16} {loss:<9} seed {seed}  {accuracy}")
        return lines


def _open_study_dir(output_dir: Path, study_config: ConfoundingConfig) -> None:
    """Create the folder, or check that the study in it is this one."""
    runs, file = ensure_dir(output_dir / "runs"), output_dir / "config.json"
    requested = _to_json_dict(study_config)
    if file.exists() and any(runs.glob("[!.]*.json")):
        existing = read_json(file)
        different = [
            f"{name} {existing.get(name)} instead of {value}"
            for name, value in requested.items()
            if existing.get(name) != value
        ]
        if different:
            raise StillmotionError(
                f"{output_dir} holds another study ({'; '.join(different[:3])}); choose another --out or delete it"
            )
    write_json(file, requested)


def _to_json_dict(study_config: ConfoundingConfig) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(study_config)))
    return plain
