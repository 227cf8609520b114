"""`study order-debug`: train small encoders on synthetic videos and run the temporal-order test on them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import load
from stillmotion.evaluation.temporal_order.config import OrderConfig
from stillmotion.evaluation.temporal_order.evaluate import (
    ORDER_FEATURES,
    OrderReport,
    evaluate_temporal_order,
    write_results,
)
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.formatting import join_words

DEBUG_SEEDS = (0, 1, 2)


def debug_config(seed: int) -> PretrainConfig:
    """Return the config of V-SimCLR + BOD-VCL with a small network on synthetic videos, half of which darken.

    Projected frames are decomposed, as in the paper. A run takes seconds on a CPU.

    Args:
        seed: Seed of the run.
    """
    config = get_recipe("demo-bod-simclr")
    model = replace(config.method.model, stage_channels=(8, 16, 32))
    return replace(
        config,
        data=replace(
            config.data, augment="synthetic", synthetic=replace(config.data.synthetic, num_videos=256, confound=())
        ),
        method=replace(config.method, model=model, gradient_balance=0.5, project_components=False),
        optim=replace(config.optim, batch_size=32, epochs=6),
        train=replace(config.train, seed=seed),
    )


_NUM_VIDEOS = 100


def run_debug_order(output_dir: str | Path, *, device: str = "auto") -> list[str]:
    """Pre-train an encoder for each seed, and tell synthetic videos that brighten from their time-reversed copies.

    Args:
        output_dir: Folder for the runs, `results.json` and `results.txt`. Finished runs in it are kept.
        device: Device of the test.

    Returns:
        The results as lines of text, with the means over pretrained and over untrained networks.
    """
    folder = Path(output_dir)
    runs = [pretrain(debug_config(seed), folder / f"seed-{seed}") for seed in DEBUG_SEEDS]
    encoders = [load(run, device=device) for run in runs]
    videos = TrainTestConfig("synthetic", num_synthetic=_NUM_VIDEOS)
    report = evaluate_temporal_order(encoders, videos, OrderConfig(compare_untrained=True))
    means = {
        "pretrained": _mean(report, [run.name for run in runs]),
        "untrained": _mean(report, [f"{run.name}, untrained" for run in runs]),
    }
    lines = [*report.to_lines(), *_format_means(means)]
    write_results(report.to_dict() | {"seeds": means}, folder, lines)
    return lines


def _format_means(means: dict[str, dict[str, float]]) -> list[str]:
    lines = [f"mean of {len(DEBUG_SEEDS)} seeds, {name}: {_format_values(values)}" for name, values in means.items()]
    better = [part for part in ORDER_FEATURES if means["pretrained"][part] > means["untrained"][part]]
    worse = [part for part in ORDER_FEATURES if part not in better]
    lines.append(f"training improves {join_words(better) if better else 'no embedding'}")
    if worse:
        lines[-1] += f", and does not improve {join_words(worse)}"
    return lines


def _mean(report: OrderReport, names: list[str]) -> dict[str, float]:
    return {part: float(np.mean([report.accuracy[name][part].mean.value for name in names])) for part in ORDER_FEATURES}


def _format_values(values: dict[str, float]) -> str:
    return ", ".join(f"{part} {value:.3f}" for part, value in values.items())
