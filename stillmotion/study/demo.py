"""The demonstration: what each of four methods learns of the same videos, on this machine, in minutes."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.config import to_json
from stillmotion.data.synthetic import FACTORS
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.probe import RESULTS
from stillmotion.recipes import recipe
from stillmotion.study.demo_page import demo_report
from stillmotion.study.runs import Run, seeded, train_and_probe

METHODS = {
    "simclr": "demo-simclr",
    "simclr+bod": "demo-bod-simclr",
    "vididi": "demo-vididi-simclr",
    "ours": "demo-ours",
}
KIND = "both"  # static ⊕ dynamic of the frozen backbone's features, for every method; results.json has all kinds
FIRST_SEED = 3  # seeds 0 to 2 are those that the settings were chosen on


def demo(out: str | Path, *, seeds: int = 5, processes: int = 1) -> Path:
    """Train each method with several seeds, probe every factor, and write `results.json` and `report.html`.

    out: a folder; what it already holds of the same demo is kept. seeds: how many, from `FIRST_SEED` on.
    processes: runs at a time, a core each; on how many, no result depends.
    """
    if seeds < 1 or processes < 1:
        raise StillmotionError(f"seeds {seeds} and processes {processes} must be at least 1")
    folder, started = Path(out), time.monotonic()
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    # All methods start from the same network.
    runs = {
        (name, seed): Run(
            folder / f"{name}-{seed}",
            seeded(recipe(METHODS[name]), seed),
            {"clips": 1, "untrained": name == "simclr"},
        )
        for seed in numbers
        for name in METHODS
    }

    def told(key: tuple[str, int]) -> str:
        scores = _scores(runs[key].folder)["trained"][KIND]
        return f"{key[0]:<11} seed {key[1]}  " + "  ".join(f"{f} {v:.2f}" for f, v in scores.items())

    train_and_probe(runs, processes=processes, told=told)
    results = _results({key: _scores(run.folder) for key, run in runs.items()}, numbers, time.monotonic() - started)
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    return demo_report(folder, results, {name: runs[name, FIRST_SEED].folder for name in METHODS})


def _scores(run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Top-1 by network (trained, untrained), kind of feature and factor."""
    accuracy = json.loads((run / RESULTS).read_text())["accuracy"]
    return {
        network: {kind: {f: cells[f]["top1"] for f in FACTORS} for kind, cells in kinds.items()}
        for network, kinds in accuracy.items()
    }


def _results(found: dict[tuple[str, int], dict[str, Any]], seeds: Sequence[int], seconds: float) -> dict[str, Any]:
    classes = recipe(METHODS["simclr"]).data.synthetic.values

    def table(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
        return {
            "seeds": {str(seed): row[KIND] for seed, row in rows.items()},
            "mean": {f: float(np.mean([row[KIND][f] for row in rows.values()])) for f in FACTORS},
            "by_feature": {str(seed): row for seed, row in rows.items()},
        }

    methods = {name: table({s: found[name, s]["trained"] for s in seeds}) for name in METHODS}
    methods["untrained"] = table({s: found["simclr", s]["untrained"] for s in seeds})
    return {
        "factors": list(FACTORS),
        "feature": KIND,
        "chance": {f: 1 / n for f, n in zip(FACTORS, classes, strict=True)},
        "methods": methods,
        "settings": {name: to_json(recipe(r)) for name, r in METHODS.items()},
        "seconds": round(seconds, 1),
    }
