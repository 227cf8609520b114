"""Training runs of a second: a debug recipe cut down further, and trained in this process."""

import contextlib
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stillmotion.errors import Interrupted
from stillmotion.training.pretrain import task
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.runtime import StopRequest
from stillmotion.training.tasks import get_recipe

_SMALL = {
    "data.image_size": 16,
    "data.num_frames": 4,
    "data.frame_stride": 1,
    "data.synthetic.num_videos": 16,
    "data.synthetic.image_size": 16,
    "data.synthetic.num_frames": 8,
    "method.model.stage_channels": (4, 8),
    "method.model.projector_hidden_dim": 8,
    "method.model.embedding_dim": 8,
    "optim.batch_size": 8,
    "optim.epochs": 1,
    "optim.warmup_epochs": 0.0,
    "train.checkpoint_every_steps": 1,
    "train.log_every_steps": 1,
}


def small_config(recipe_name: str = "k400-simclr", overrides: dict[str, Any] | None = None) -> PretrainConfig:
    """Return a debug recipe reduced to two steps; overrides are keyed by dotted field names such as "optim.lr"."""
    config: PretrainConfig = get_recipe(recipe_name, debug=True)
    for field, value in (_SMALL | (overrides or {})).items():
        config = _replace_field(config, field.split("."), value)
    return config


def train(config: PretrainConfig, output_dir: Path) -> Path:
    """Train on one thread; returns the folder of the run."""
    with single_thread():
        return pretrain(config, output_dir)


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Use one thread, because the order of sums and so their rounding depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def pretrain_in_float64() -> Iterator[None]:
    """Pre-training runs compute in float64, and without the statistics of embeddings."""
    build = task._build_method
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_build_method", lambda *args, **options: build(*args, **options).double())
        patch.setattr(
            task,
            "compute_gradients",
            lambda method, clips, *args, **options: compute_gradients(method, clips.double(), *args, **options),
        )
        patch.setattr(task, "embedding_stats", lambda *args, **options: {})
        yield


@contextlib.contextmanager
def stop_at_step(step: int, total_steps: int) -> Iterator[None]:
    """Request a stop at this step of the run inside, and assert that it is interrupted there."""

    class StopAtStep(StopRequest):
        num_steps = 0

        def is_requested_on_any_rank(self) -> bool:
            self.num_steps += 1
            return self.num_steps == step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillmotion.training.runtime.StopRequest", StopAtStep)
        with pytest.raises(Interrupted, match=f"Stopped at step {step} of {total_steps}"):
            yield


def _replace_field(tree: Any, path: list[str], value: Any) -> Any:
    assert is_dataclass(tree)
    assert not isinstance(tree, type)
    name, *rest = path
    return replace(tree, **{name: _replace_field(getattr(tree, name), rest, value) if rest else value})
