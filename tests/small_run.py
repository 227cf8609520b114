"""Training runs of a second: a debug recipe cut down further, and trained in this process."""

import contextlib
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stillmotion.config import Config
from stillmotion.errors import Interrupted
from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import pretrain
from stillmotion.train.process import StopRequest

_SMALL = {
    "data.size": 16,
    "data.frames": 4,
    "data.stride": 1,
    "data.synthetic.videos": 16,
    "data.synthetic.size": 16,
    "data.synthetic.length": 8,
    "method.model.channels": (4, 8),
    "method.model.hidden": 8,
    "method.model.width": 8,
    "optim.batch": 8,
    "optim.epochs": 1,
    "optim.warmup_epochs": 0.0,
    "train.checkpoint_every": 1,
    "train.log_every": 1,
}


def small(name: str = "debug-simclr", changes: dict[str, Any] | None = None) -> Config:
    """A recipe at its smallest, two steps long; changes: by place, such as "optim.lr"."""
    config = recipe(name)
    for place, value in (_SMALL | (changes or {})).items():
        config = _changed(config, place.split("."), value)
    return config


def trained(config: Config, folder: Path) -> Path:
    """The folder of the finished run, trained on one core."""
    with one_core():
        return pretrain(config, folder)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """On several cores sums are taken in another order, and rounded otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def stopping(step: int, total: int) -> Iterator[None]:
    """What runs inside is asked to stop after so many steps of all, and does."""

    class Asked(StopRequest):
        seen = 0

        def agreed(self) -> bool:
            self.seen += 1
            return self.seen == step

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stillmotion.train.process.StopRequest", Asked)
        with pytest.raises(Interrupted, match=f"stopped at step {step} of {total}"):
            yield


def _changed(tree: Any, place: list[str], value: Any) -> Any:
    assert is_dataclass(tree)
    assert not isinstance(tree, type)
    name, *rest = place
    return replace(tree, **{name: _changed(getattr(tree, name), rest, value) if rest else value})
