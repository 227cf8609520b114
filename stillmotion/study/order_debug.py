"""`stillmotion order --recipe debug`: small encoders of several seeds, trained and asked beside their beginnings."""

from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.halves import Halves
from stillmotion.encoders import Progress, load
from stillmotion.evaluate.order import PARTS, order, result_lines, write_results
from stillmotion.recipes.order import SEEDS, order_debug
from stillmotion.tasks.pretrain import pretrain

_VIDEOS = 100


def debug_order(out: str | Path, *, device: str = "auto", progress: Progress | None = None) -> dict[str, Any]:
    """Pre-train an encoder for each seed, and tell drawn videos that brighten from their reverses.

    out: a folder for the runs, `results.json` and `results.txt`. Runs that are there already are used as they are.
    The results are those of `order`, and under "seeds" the mean of trained and of untrained networks by embedding.
    """
    folder = Path(out)
    runs = [pretrain(order_debug(seed), folder / f"seed-{seed}") for seed in SEEDS]
    encoders = [load(run, device=device) for run in runs]
    results = order(encoders, Halves("synthetic", videos=_VIDEOS), untrained=True, progress=progress)
    results["seeds"] = {
        "trained": _mean(results, [run.name for run in runs]),
        "untrained": _mean(results, [f"{run.name}, untrained" for run in runs]),
    }
    write_results(results, folder, debug_lines(results))
    return results


def debug_lines(results: dict[str, Any]) -> list[str]:
    """The results of `debug_order` as lines for a terminal."""
    means = results["seeds"]
    lines = result_lines(results)
    lines += [f"mean of {len(SEEDS)} seeds, {name}: {_listed(values)}" for name, values in means.items()]
    better = [part for part in PARTS if means["trained"][part] > means["untrained"][part]]
    worse = [part for part in PARTS if part not in better]
    lines.append(
        f"training told order better by {' and '.join(better) or 'no embedding'}"
        + (f", and not by {' and '.join(worse)}" if worse else "")
    )
    return lines


def _mean(results: dict[str, Any], names: list[str]) -> dict[str, float]:
    return {part: float(np.mean([results["accuracy"][name][part]["mean"][0] for name in names])) for part in PARTS}


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{part} {value:.3f}" for part, value in values.items())
