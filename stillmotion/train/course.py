"""How far a run is, read from its folder at any moment, by whoever does not train it and without a hold on it."""

import time
from dataclasses import dataclass
from pathlib import Path

from stillmotion import files
from stillmotion.config import read_any_config
from stillmotion.errors import StillmotionError
from stillmotion.train.log import PROGRESS, read_metrics


@dataclass(frozen=True)
class Course:
    """Of a run: steps done and in all (0 where none is known yet), who trains it now, and what it last said.

    rate: clips a second. left: seconds. at: when this was written down, in seconds since 1970; None where it was not.
    """

    step: int
    total: int
    holder: str | None
    rate: float | None = None
    left: float | None = None
    at: float | None = None

    @property
    def finished(self) -> bool:
        """Whether its last step was taken."""
        return 0 < self.total <= self.step

    @property
    def ago(self) -> float:
        """Seconds since it was last heard of."""
        return max(0.0, time.time() - self.at) if self.at is not None else 0.0


def course_of(folder: str | Path) -> Course:
    """How far the run of a folder is; of one that did not note it, by the steps that it logged."""
    place = Path(folder)
    holder = files.holder(place)
    epochs = read_metrics(place).get("epoch", [])
    step, epoch = epochs[-1] if epochs else (0, 0.0)
    try:
        said = files.read_json(place / PROGRESS, remedy="the run writes it anew")
        found = Course(
            max(step, said["step"]),
            said["total"],
            holder,
            said.get("clips_per_second"),
            said.get("seconds_left"),
            said["at"],
        )
    except (OSError, StillmotionError):
        total = round(read_any_config(place).optim.epochs * step / epoch) if epoch else 0
        found = Course(step, total, holder)
    return found
