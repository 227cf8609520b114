"""What one similarity learns where two semantics tell the same, and what two learn (BOD-VCL, §5.5, Figures 6 and 7).

A two-stream network is trained with InfoNCE on the sum of its streams (unified) or on each stream by itself
(decoupled), on synthetic videos of four semantics. Runs of one setting and seed share their videos and are a job of a
worker process; every run is a file, so that a study that was stopped goes on.
"""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
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
from stillmotion.utils.files import ensure_dir, read_json, report_disk_errors, write_json
from stillmotion.utils.processes import init_worker, worker_context

RESULTS_FILE = "results.json"


def run_confounding(
    output_dir: str | Path,
    study_config: ConfoundingConfig | None = None,
    *,
    num_seeds: int = 3,
    num_processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train and probe every setting, loss and seed; write `results.json` and `report.html`; return the results.

    output_dir: a folder; runs that it already holds of the same study are kept.
    num_processes: jobs at a time, a core each. progress: called with the steps done and their total.
    told: called with a line for each run that ends.
    """
    study_config, folder = study_config or ConfoundingConfig(), Path(output_dir)
    if num_seeds < 1 or num_processes < 1:
        raise StillmotionError(f"seeds {num_seeds} and processes {num_processes} must be at least 1")
    _open_study_dir(folder, study_config)
    keys = [(s, loss, seed) for seed in range(num_seeds) for s in CONFOUNDED_PAIRS for loss in LOSSES]
    jobs = [(setting, seed) for seed in range(num_seeds) for setting in CONFOUNDED_PAIRS]
    waiting = [j for j in jobs if any(not run_result_path(folder, j[0], loss, j[1]).exists() for loss in LOSSES)]
    ready = sum(run_result_path(folder, *key).exists() for key in keys) * study_config.steps
    _run_jobs(
        folder,
        study_config,
        waiting,
        min(num_processes, len(waiting)),
        ready,
        len(keys) * study_config.steps,
        progress,
        told,
    )
    runs = [read_json(run_result_path(folder, *key)) for key in keys]
    results = {
        "config": _to_json_dict(study_config),
        "confounded_pairs": {name: list(pairs) for name, pairs in CONFOUNDED_PAIRS.items()},
        "classes": study_config.factor_classes,
        "chance": {f: 1 / len(names) for f, names in study_config.factor_classes.items()},
        "runs": runs,
        "hypotheses": evaluate_hypotheses(runs),
        "cpu_seconds": round(sum(run["seconds"] for run in runs), 1),
    }
    write_json(folder / RESULTS_FILE, results)
    write_confounding_page(folder, results)
    return results


def format_results(results: Mapping[str, Any]) -> list[str]:
    """What became of each prediction, as lines for a terminal."""
    verdicts = {True: "supported    ", False: "not supported"}
    return [
        f"{verdicts[bool(p['supported'])]}  {p['setting']:<16}  {p['claim']}: {p['observed']}"
        for p in results["hypotheses"]
    ]


def run_result_path(output_dir: Path, setting: str, loss: str, seed: int) -> Path:
    """Where a run's numbers are."""
    return output_dir / "runs" / f"{setting.replace('=', '-')}-{loss}-{seed}.json"


# What the workers share with their parent: the number of steps done, and whether to stop.
_shared: dict[str, Any] = {}


class _Stopped(Exception):
    pass


def _init_worker(done: Any, stop: Any) -> None:
    init_worker()
    threadpool_limits(1)  # the probes' linear algebra has threads of its own
    _shared.update(done=done, stop=stop)


def _count_step() -> None:
    with _shared["done"].get_lock():
        _shared["done"].value += 1
    if _shared["stop"].is_set():
        raise _Stopped


def _train_setting(output_dir: Path, study_config: ConfoundingConfig, setting: str, seed: int) -> list[str]:
    """Both losses on the same videos; a line about each run that was made."""
    todo = [loss for loss in LOSSES if not run_result_path(output_dir, setting, loss, seed).exists()]
    clips, lines = build_train_clips(study_config, setting, seed), []
    for loss in todo:
        started = time.process_time()
        run = train_two_stream(
            study_config, clips, build_probe_clips(study_config), loss=loss, seed=seed, on_step=_count_step
        )
        run = {"setting": setting} | run | {"seconds": round(time.process_time() - started, 1)}
        write_json(run_result_path(output_dir, setting, loss, seed), run)
        words = "  ".join(f"{f} {run['untrained'][f]:.2f} → {v:.2f}" for f, v in run["accuracy"].items())
        lines.append(f"{setting:<16} {loss:<9} seed {seed}  {words}")
    return lines


def _run_jobs(
    output_dir: Path,
    study_config: ConfoundingConfig,
    jobs: list[tuple[str, int]],
    num_processes: int,
    ready: int,
    total: int,
    progress: Callable[[int, int], None] | None,
    told: Callable[[str], None] | None,
) -> None:
    if not jobs:
        return
    context = worker_context("stillmotion.data.loading.loader")
    done, stop = context.Value("l", 0), context.Event()
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_init_worker, initargs=(done, stop))
    try:
        left: set[Future[list[str]]] = {pool.submit(_train_setting, output_dir, study_config, *job) for job in jobs}
        while left:
            finished, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
            if progress:
                progress(ready + done.value, total)
            for line in (line for future in finished for line in future.result()):
                if told:
                    told(line)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _open_study_dir(output_dir: Path, study_config: ConfoundingConfig) -> None:
    """Make the folder, or check that the study in it is this one."""
    runs, file = ensure_dir(output_dir / "runs"), output_dir / "config.json"
    if file.exists():
        there = _to_json_dict(ConfoundingConfig()) | read_json(file)  # what came later is as it was by default
        wanted = {name: value for name, value in _to_json_dict(study_config).items() if there.get(name) != value}
        other = [f"{name} {there.get(name)} instead of {value}" for name, value in wanted.items()]
        if other and any(runs.iterdir()):
            raise StillmotionError(
                f"{output_dir} holds another study ({'; '.join(other[:3])}); choose another --out or delete it"
            )
    with report_disk_errors(output_dir):
        write_json(file, _to_json_dict(study_config))


def _to_json_dict(study_config: ConfoundingConfig) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(study_config)))
    return plain
