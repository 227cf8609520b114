"""`demo`: train methods on the same synthetic videos in minutes, and probe what each learns."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.synthetic.factors import FACTORS
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.evaluate import RESULTS_FILE
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.studies.demo.report import write_demo_page
from stillmotion.studies.run_pool import StudyRun, train_and_evaluate, with_seed
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.files import read_json, write_json
from stillmotion.utils.option_types import DemoObjective
from stillmotion.utils.typed_config import to_dict

DEMO_RECIPES = {
    "simclr": "demo-simclr",
    "simclr+bod-eq21": "demo-bod-eq21-simclr",
    "simclr+bod": "demo-bod-simclr",
    "vididi": "demo-vididi-simclr",
    "best": "demo-best",
}
FEATURE_KIND = "concat"  # static ⊕ dynamic of the frozen features; results.json has all kinds
FIRST_SEED = 11  # options were chosen on seeds 0 to 2


def run_demo(
    output_dir: str | Path,
    *,
    objective: DemoObjective = "simclr",
    all_methods: bool = False,
    num_seeds: int | None = None,
    num_processes: int = 1,
) -> Path:
    """Train each method with several seeds, probe every factor, and write `results.json` and `report.html`.

    Args:
        output_dir: Folder; finished runs in it are kept.
        objective: Objective that is trained with and without BOD-VCL.
        all_methods: Train all of `DEMO_RECIPES`.
        num_seeds: Number of seeds, from `FIRST_SEED` on; default 2, or 5 for all methods.
        num_processes: Parallel runs, one CPU core each; results do not depend on it.

    Returns:
        The path of the report.

    Raises:
        StillmotionError: If there is nothing to run, or all methods are requested with another objective than SimCLR.
    """
    num_seeds = (5 if all_methods else 2) if num_seeds is None else num_seeds
    if num_seeds < 1 or num_processes < 1:
        raise StillmotionError(f"num_seeds {num_seeds} and num_processes {num_processes} must be at least 1")
    if all_methods and objective != "simclr":
        raise StillmotionError(f"--all compares methods with SimCLR. Remove --objective {objective}, or --all.")
    folder, started = Path(output_dir), time.monotonic()
    recipes = DEMO_RECIPES
    if not all_methods:
        recipes = {objective: f"demo-{objective}", f"{objective}+bod": f"demo-bod-{objective}"}
    seeds = range(FIRST_SEED, FIRST_SEED + num_seeds)
    # All methods start from the same network, and the features of all are decomposed by the library's default.
    runs = {
        (name, seed): StudyRun(
            folder / f"{name}-{seed}",
            with_seed(get_recipe(recipe), seed),
            {"num_clips": 1, "compare_untrained": name == objective, "static_dynamic": StaticDynamicConfig()},
        )
        for seed in seeds
        for name, recipe in recipes.items()
    }

    def format_line(key: tuple[str, int]) -> str:
        scores = _load_top1(runs[key].run_dir)["pretrained"][FEATURE_KIND]
        return f"{key[0]:<15} seed {key[1]}  " + "  ".join(f"{f} {v:.2f}" for f, v in scores.items())

    train_and_evaluate(runs, num_processes=num_processes, format_line=format_line)
    results = _build_results(
        {key: _load_top1(run.run_dir) for key, run in runs.items()}, recipes, seeds, time.monotonic() - started
    )
    write_json(folder / "results.json", results)
    return write_demo_page(folder, results, {name: runs[name, FIRST_SEED].run_dir for name in recipes})


def _load_top1(run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Top-1 by network (pretrained, untrained), kind of feature and factor."""
    accuracy = read_json(run / RESULTS_FILE)["accuracy"]
    return {
        network: {kind: {f: cells[f]["top1"] for f in FACTORS} for kind, cells in kinds.items()}
        for network, kinds in accuracy.items()
    }


def _build_results(
    scores: dict[tuple[str, int], dict[str, Any]], recipes: dict[str, str], seeds: Sequence[int], seconds: float
) -> dict[str, Any]:
    """Results by method, the baseline first."""
    baseline = next(iter(recipes))
    classes = get_recipe(recipes[baseline]).data.synthetic.values_per_factor

    def table(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
        return {
            "seeds": {str(seed): row[FEATURE_KIND] for seed, row in rows.items()},
            "mean": {f: float(np.mean([row[FEATURE_KIND][f] for row in rows.values()])) for f in FACTORS},
            "by_feature_kind": {str(seed): row for seed, row in rows.items()},
        }

    methods = {name: table({s: scores[name, s]["pretrained"] for s in seeds}) for name in recipes}
    methods["untrained"] = table({s: scores[baseline, s]["untrained"] for s in seeds})
    return {
        "factors": list(FACTORS),
        "feature": FEATURE_KIND,
        "chance": {f: 1 / n for f, n in zip(FACTORS, classes, strict=True)},
        "methods": methods,
        "configs": {name: to_dict(get_recipe(recipe)) for name, recipe in recipes.items()},
        "seconds": round(seconds, 1),
    }
