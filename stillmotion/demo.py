"""The demonstration: what plain contrastive learning misses, learned on this machine in minutes.

Each run is a process of its own on one core (`python -m stillmotion.demo RECIPE SEED FOLDER`) and can be resumed.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stillmotion.config import to_json
from stillmotion.data.synthetic import FACTORS
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.probe import RESULTS, probe
from stillmotion.recipes import recipe
from stillmotion.train.log import read_metrics
from stillmotion.train.loop import pretrain

METHODS = {"simclr": "demo-simclr", "simclr+bod": "demo-bod-simclr"}
KIND = "whole"  # the usual linear evaluation: the frozen backbone's features, averaged over frames


def demo(out: str | Path, *, seeds: int = 3, processes: int = 1) -> Path:
    """Train both methods with several seeds, probe every factor, and write `results.json` and `report.html`.

    out: a folder; what it already holds of the same demo is kept. processes: runs at a time, a core each.
    """
    from stillmotion.report.demo import demo_report

    if seeds < 1 or processes < 1:
        raise StillmotionError(f"seeds {seeds} and processes {processes} must be at least 1")
    folder, started = Path(out), time.monotonic()
    runs = {(name, seed): folder / f"{name}-{seed}" for seed in range(seeds) for name in METHODS}
    waiting = list(runs)
    working: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    with _progress() as bar:
        epochs = recipe(METHODS["simclr"]).optim.epochs
        task = bar.add_task("training and probing", total=(epochs + 1) * len(runs))
        while waiting or working:
            while waiting and len(working) < processes:
                working[waiting[0]] = _start(*waiting[0], runs[waiting[0]])
                waiting.pop(0)
            for key, child in list(working.items()):
                if child.poll() is None:
                    continue
                del working[key]
                if child.returncode:
                    for other in working.values():
                        other.terminate()
                    raise StillmotionError(f"the run {runs[key]} failed; {runs[key] / 'log.txt'} says why")
                scores = _scores(runs[key])["trained"][KIND]
                words = "  ".join(f"{f} {v:.2f}" for f, v in scores.items())
                bar.console.print(f"{key[0]:<11} seed {key[1]}  {words}", highlight=False)
            bar.update(task, completed=sum(_advance(run) for run in runs.values()))
            time.sleep(0.2)
    results = _results({key: _scores(run) for key, run in runs.items()}, seeds, time.monotonic() - started)
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    return demo_report(folder, results, {name: runs[name, 0] for name in METHODS})


def _start(name: str, seed: int, run: Path) -> "subprocess.Popen[bytes]":
    run.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stillmotion.demo", METHODS[name], str(seed), str(run)]
    one_core = os.environ | {"OMP_NUM_THREADS": "1"}
    with (run / "log.txt").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=one_core)


def _one(name: str, seed: int, run: Path) -> None:
    config = recipe(name)
    pretrain(replace(config, train=replace(config.train, seed=seed)), run)
    if not (run / RESULTS).exists():
        # Both methods start from the same network.
        probe(run, "synthetic", clips=1, untrained_too=name == METHODS["simclr"])


def _advance(run: Path) -> float:
    """Epochs a run has behind it; its probe counts as one more."""
    epochs = read_metrics(run).get("epoch", [(0, 0.0)])[-1][1]
    return epochs + (run / RESULTS).exists()


def _scores(run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Top-1 by network (trained, untrained), kind of feature and factor."""
    accuracy = json.loads((run / RESULTS).read_text())["accuracy"]
    return {
        network: {kind: {f: cells[f]["top1"] for f in FACTORS} for kind, cells in kinds.items()}
        for network, kinds in accuracy.items()
    }


def _results(found: dict[tuple[str, int], dict[str, Any]], seeds: int, seconds: float) -> dict[str, Any]:
    classes = recipe(METHODS["simclr"]).data.synthetic.values

    def table(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
        return {
            "seeds": {str(seed): row[KIND] for seed, row in rows.items()},
            "mean": {f: float(np.mean([row[KIND][f] for row in rows.values()])) for f in FACTORS},
            "by_feature": {str(seed): row for seed, row in rows.items()},
        }

    methods = {name: table({s: found[name, s]["trained"] for s in range(seeds)}) for name in METHODS}
    methods["untrained"] = table({s: found["simclr", s]["untrained"] for s in range(seeds)})
    return {
        "factors": list(FACTORS),
        "feature": KIND,
        "chance": {f: 1 / n for f, n in zip(FACTORS, classes, strict=True)},
        "methods": methods,
        "settings": {name: to_json(recipe(r)) for name, r in METHODS.items()},
        "seconds": round(seconds, 1),
    }


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    _one(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
