"""The demonstration: what plain contrastive learning misses, learned on this machine in minutes."""

import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stillmotion.config import Config, to_json
from stillmotion.data.synthetic import FACTORS
from stillmotion.recipes import recipe

METHODS = {"simclr": "demo-simclr", "simclr+bod": "demo-bod-simclr"}
KIND = "both"  # static ⊕ dynamic of the frozen backbone, for every method alike


def demo(out: str | Path, *, seeds: int = 3, processes: int = 1) -> Path:
    """Train both methods with several seeds, probe every factor, and write `results.json` and `report.html`.

    out: a folder; what it already holds of the same demo is kept. processes: runs at a time, a core each.
    """
    from stillmotion.report.demo import demo_report

    out, started = Path(out), time.monotonic()
    runs = {(name, seed): out / f"{name}-{seed}" for seed in range(seeds) for name in METHODS}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    with _pool(processes) as pool, _progress() as bar:
        jobs = {pool.submit(_train_and_probe, METHODS[name], seed, folder): (name, seed) for (name, seed), folder in runs.items()}
        task = bar.add_task("training and probing", total=len(jobs) * _steps(recipe(METHODS["simclr"])))
        try:
            while len(found) < len(jobs):
                bar.update(task, completed=sum(_done(folder) for folder in runs.values()))
                for job in [j for j in jobs if j.done() and jobs[j] not in found]:
                    found[jobs[job]] = job.result()
                    bar.console.print(f"{jobs[job][0]}, seed {jobs[job][1]}: {_line(found[jobs[job]]['trained'])}", highlight=False)
                time.sleep(0.2)
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    results = _results(found, seeds, seconds=time.monotonic() - started)
    (out / "results.json").write_text(json.dumps(results, indent=1))
    return demo_report(out, results, {name: runs[name, 0] for name in METHODS})


def _train_and_probe(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run in a process of its own; the probe of the trained and of the untrained network."""
    from stillmotion.evaluate.probe import RESULTS, probe
    from stillmotion.train.loop import pretrain

    config = recipe(name)
    pretrain(replace(config, train=replace(config.train, seed=seed)), folder)
    if not (folder / RESULTS).exists():
        probe(folder, "synthetic", untrained_too=True)
    accuracy = json.loads((folder / RESULTS).read_text())["accuracy"]
    return {who: {kind: {f: cells[f]["top1"] for f in FACTORS} for kind, cells in kinds.items()} for who, kinds in accuracy.items()}
