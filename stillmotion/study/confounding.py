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

from stillmotion.data.workers import process_context, start_worker
from stillmotion.errors import StillmotionError
from stillmotion.files import made, writing
from stillmotion.study.confounded import LOSSES, SETTINGS, Study, probed_clips, train, training_clips
from stillmotion.study.confounding_page import confounding_report
from stillmotion.study.predictions import predictions

RESULTS = "results.json"


def confounding(
    out: str | Path,
    study: Study | None = None,
    *,
    seeds: int = 3,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train and probe every setting, loss and seed; write `results.json` and `report.html`; return the results.

    out: a folder; runs that it already holds of the same study are kept.
    processes: jobs at a time, a core each. progress: called with the steps done and their total.
    told: called with a line for each run that ends.
    """
    study, folder = study or Study(), Path(out)
    if seeds < 1 or processes < 1:
        raise StillmotionError(f"seeds {seeds} and processes {processes} must be at least 1")
    _open(folder, study)
    keys = [(s, loss, seed) for seed in range(seeds) for s in SETTINGS for loss in LOSSES]
    jobs = [(setting, seed) for seed in range(seeds) for setting in SETTINGS]
    waiting = [j for j in jobs if any(not run_file(folder, j[0], loss, j[1]).exists() for loss in LOSSES)]
    ready = sum(run_file(folder, *key).exists() for key in keys) * study.steps
    _work(folder, study, waiting, min(processes, len(waiting)), ready, len(keys) * study.steps, progress, told)
    runs = [json.loads(run_file(folder, *key).read_text()) for key in keys]
    results = {
        "study": _plain(study),
        "settings": {name: list(pairs) for name, pairs in SETTINGS.items()},
        "classes": study.classes,
        "chance": {f: 1 / len(names) for f, names in study.classes.items()},
        "runs": runs,
        "predictions": predictions(runs),
        "core_seconds": round(sum(run["seconds"] for run in runs), 1),
    }
    _write(folder / RESULTS, results)
    confounding_report(folder, results)
    return results


def result_lines(results: Mapping[str, Any]) -> list[str]:
    """What became of each prediction, as lines for a terminal."""
    verdicts = {True: "supported    ", False: "not supported"}
    return [
        f"{verdicts[bool(p['supported'])]}  {p['setting']:<16}  {p['claim']}: {p['measured']}"
        for p in results["predictions"]
    ]


def run_file(folder: Path, setting: str, loss: str, seed: int) -> Path:
    """Where a run's numbers are."""
    return folder / "runs" / f"{setting.replace('=', '-')}-{loss}-{seed}.json"


# What the workers share with their parent: the number of steps done, and whether to stop.
_shared: dict[str, Any] = {}


class _Stopped(Exception):
    pass


def _begin(done: Any, stop: Any) -> None:
    start_worker()
    threadpool_limits(1)  # the probes' linear algebra has threads of its own
    _shared.update(done=done, stop=stop)


def _tick() -> None:
    with _shared["done"].get_lock():
        _shared["done"].value += 1
    if _shared["stop"].is_set():
        raise _Stopped


def _job(folder: Path, study: Study, setting: str, seed: int) -> list[str]:
    """Both losses on the same videos; a line about each run that was made."""
    todo = [loss for loss in LOSSES if not run_file(folder, setting, loss, seed).exists()]
    clips, lines = training_clips(study, setting, seed), []
    for loss in todo:
        started = time.process_time()
        run = train(study, clips, probed_clips(study), loss=loss, seed=seed, tick=_tick)
        run = {"setting": setting} | run | {"seconds": round(time.process_time() - started, 1)}
        _write(run_file(folder, setting, loss, seed), run)
        words = "  ".join(f"{f} {run['untrained'][f]:.2f} → {v:.2f}" for f, v in run["accuracy"].items())
        lines.append(f"{setting:<16} {loss:<9} seed {seed}  {words}")
    return lines


def _work(
    folder: Path,
    study: Study,
    jobs: list[tuple[str, int]],
    processes: int,
    ready: int,
    total: int,
    progress: Callable[[int, int], None] | None,
    told: Callable[[str], None] | None,
) -> None:
    if not jobs:
        return
    context = process_context()
    done, stop = context.Value("l", 0), context.Event()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(done, stop))
    try:
        left: set[Future[list[str]]] = {pool.submit(_job, folder, study, *job) for job in jobs}
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


def _open(folder: Path, study: Study) -> None:
    """Make the folder, or check that the study in it is this one."""
    runs, file = made(folder / "runs"), folder / "study.json"
    if file.exists():
        there = _plain(Study()) | json.loads(file.read_text())  # what came later is as it was by default
        wanted = {name: value for name, value in _plain(study).items() if there.get(name) != value}
        other = [f"{name} {there.get(name)} instead of {value}" for name, value in wanted.items()]
        if other and any(runs.iterdir()):
            raise StillmotionError(
                f"{folder} holds another study ({'; '.join(other[:3])}); choose another --out or delete it"
            )
    with writing(folder):
        _write(file, _plain(study))


def _plain(study: Study) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(study)))
    return plain


def _write(file: Path, content: dict[str, Any]) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(file)
