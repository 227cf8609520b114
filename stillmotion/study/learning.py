"""Whether runs have learned: the loss of each component at the end, beside that of a batch that tells nothing apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stillmotion.config import load_config
from stillmotion.train.log import read_metrics

_LAST = 10  # lines of a run's metrics that are averaged


class Learned(NamedTuple):
    """A component at the end of a run.

    loss: the mean over its last lines. chance: as in `Objective.chance`.
    deviation: as in `train.health`. Two clips of different videos have a cosine of 1 - deviation² in the mean, so that
        this square is what a prediction that says the same of all videos leaves of BYOL's loss.
    """

    loss: float
    chance: float
    deviation: float


def learned(run: str | Path) -> dict[str, Learned]:
    """What became of each component of a pre-training run's embedding."""
    config, found = load_config(run), read_metrics(run)
    method = config.method
    chance = method.objective.build(method.model.width).chance(
        config.optim.batch // config.train.accumulate, config.data.clips
    )

    def last(key: str) -> float:
        values = [value for _, value in found[key][-_LAST:]]
        return sum(values) / len(values)

    names = ("whole",) if method.split.how == "none" else ("static", "dynamic")
    return {name: Learned(last(f"loss/{name}"), chance, last(f"health/{name}/deviation")) for name in names}


def learning_table(runs: Mapping[str, Mapping[str, Learned]]) -> str:
    """The components of several runs, by their names, as a table in Markdown."""
    rows = ["| run | component | loss | chance | deviation |", "|---|---|---|---|---|"]
    for run, components in runs.items():
        for name, c in components.items():
            rows.append(f"| {run} | {name} | {c.loss:.2f} | {c.chance:.2f} | {c.deviation:.2f} |")
    return "\n".join(rows)
