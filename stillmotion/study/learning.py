"""Whether runs have learned: the loss of each component at the end, beside that of a batch that tells nothing apart."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stillmotion.config import load_config
from stillmotion.train.log import read_metrics

_LAST = 0.1  # of a run's steps, of whose numbers the middle one is taken: one batch may be far off


class Learned(NamedTuple):
    """A component at the end of a run.

    loss: the median over the last tenth of its steps.
    chance: the loss of a batch in which nothing is told apart; where the objective has none, as BYOL, whose loss is 0
        where all clips are alike, the loss that the keys of other videos leave.
    deviation: of its unit embeddings, as in `train.health`: 0 where all clips are alike.
    """

    loss: float
    chance: float
    deviation: float


def learned(run: str | Path) -> dict[str, Learned]:
    """What became of each component of a pre-training run's embedding."""
    config, found = load_config(run), read_metrics(run)
    method = config.method
    videos = config.optim.batch // config.train.accumulate
    chance = method.objective.build(method.model.width).chance(videos, config.data.clips)

    def last(key: str) -> float:
        end = found[key][-1][0]
        return statistics.median(value for step, value in found[key] if step > (1 - _LAST) * end)

    names = ("whole",) if method.split.how == "none" else ("static", "dynamic")
    return {
        name: Learned(
            last(f"loss/{name}"),
            last(f"health/{name}/stranger") if math.isnan(chance) and f"health/{name}/stranger" in found else chance,
            last(f"health/{name}/deviation"),
        )
        for name in names
    }


def learning_table(runs: Mapping[str, Mapping[str, Learned]]) -> str:
    """The components of several runs, by their names, as a table in Markdown."""
    rows = ["| run | component | loss | chance | deviation |", "|---|---|---|---|---|"]
    for run, components in runs.items():
        for name, c in components.items():
            rows.append(f"| {run} | {name} | {c.loss:.2f} | {c.chance:.2f} | {c.deviation:.2f} |")
    return "\n".join(rows)
