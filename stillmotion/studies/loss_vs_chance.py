"""Whether runs have learned: the loss of each component at the end, beside that of a batch that tells nothing apart."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.run_log import load_metrics

_LAST_FRACTION = 0.1  # of a run's steps, of whose numbers the middle one is taken: one batch may be far off


class FinalLoss(NamedTuple):
    """A component at the end of a run.

    loss: the median over the last tenth of its steps.
    chance: the loss of a batch in which nothing is told apart; where the objective has none, as BYOL, whose loss is 0
        where all clips are alike, the loss that the keys of other videos leave.
    embedding_std: of its unit embeddings, as in `train.health`: 0 where all clips are alike.
    """

    loss: float
    chance: float
    embedding_std: float


def final_losses(run_dir: str | Path) -> dict[str, FinalLoss]:
    """What became of each component of a pre-training run's embedding."""
    config, found = load_config(run_dir, PretrainConfig), load_metrics(run_dir)
    method = config.method
    videos = config.optim.batch_size // config.train.grad_accum_steps
    chance = method.objective.build(method.model.embedding_dim).chance_loss(videos, config.data.clips_per_video)

    def last(key: str) -> float:
        end = found[key][-1][0]
        return statistics.median(value for step, value in found[key] if step > (1 - _LAST_FRACTION) * end)

    names = ("whole",) if method.static_dynamic.method == "none" else ("static", "dynamic")
    return {
        name: FinalLoss(
            last(f"loss/{name}"),
            last(f"health/{name}/shuffled_key_loss")
            if math.isnan(chance) and f"health/{name}/shuffled_key_loss" in found
            else chance,
            last(f"health/{name}/embedding_std"),
        )
        for name in names
    }


def final_loss_table(runs: Mapping[str, Mapping[str, FinalLoss]]) -> str:
    """The components of several runs, by their names, as a table in Markdown."""
    rows = ["| run | component | loss | chance | deviation |", "|---|---|---|---|---|"]
    for run, components in runs.items():
        for name, c in components.items():
            rows.append(f"| {run} | {name} | {c.loss:.2f} | {c.chance:.2f} | {c.embedding_std:.2f} |")
    return "\n".join(rows)
