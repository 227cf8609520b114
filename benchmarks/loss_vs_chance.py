"""Final losses of pre-training runs beside the loss of embeddings that carry no information."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.run_log import load_metrics

_LAST_FRACTION = 0.1  # of the steps; their median is taken, because single batches vary


class FinalLoss(NamedTuple):
    """A component at the end of a run.

    Attributes:
        loss: Median loss over the last tenth of the steps.
        chance_loss: Loss of embeddings without information; for an objective that has none, such as BYOL, the loss with
            the keys of other videos.
        embedding_std: Standard deviation of the unit embeddings: 0 if all are equal.
    """

    loss: float
    chance_loss: float
    embedding_std: float


def final_losses(run_dir: str | Path) -> dict[str, FinalLoss]:
    """Return the final loss of each component of a pre-training run."""
    config, metrics = load_config(run_dir, PretrainConfig), load_metrics(run_dir)
    method = config.method
    videos = config.optim.batch_size // config.train.grad_accum_steps
    chance = method.objective.build(method.model.embedding_dim).chance_loss(videos, config.data.clips_per_video)

    def last(key: str) -> float:
        end = metrics[key][-1][0]
        return statistics.median(value for step, value in metrics[key] if step > (1 - _LAST_FRACTION) * end)

    names = ("whole",) if method.static_dynamic.method == "none" else ("static", "dynamic")
    return {
        name: FinalLoss(
            last(f"loss/{name}"),
            last(f"health/{name}/shuffled_key_loss")
            if math.isnan(chance) and f"health/{name}/shuffled_key_loss" in metrics
            else chance,
            last(f"health/{name}/embedding_std"),
        )
        for name in names
    }


def final_loss_table(runs: Mapping[str, Mapping[str, FinalLoss]]) -> str:
    """Format the components of several runs as a Markdown table."""
    rows = ["| run | component | loss | chance | embedding_std |", "|---|---|---|---|---|"]
    for run, components in runs.items():
        for name, c in components.items():
            rows.append(f"| {run} | {name} | {c.loss:.2f} | {c.chance_loss:.2f} | {c.embedding_std:.2f} |")
    return "\n".join(rows)
