"""What training from an encoder shares: finetune, detect and segment start from its network, train and test."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, canonical_spec, load
from stillmotion.encoders.loading import parse_spec
from stillmotion.errors import StillmotionError
from stillmotion.training.config import ClipConfig, EncoderRunConfig
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.run_dir import (
    RESULTS_FILE,
    _is_readable_json,
    check_inputs_not_overwritten,
    lock_run_dir,
    resolve_run_precision,
)
from stillmotion.training.runtime import training_session
from stillmotion.utils import files
from stillmotion.utils.progress import progress_bar

ConfigT = TypeVar("ConfigT", bound=EncoderRunConfig)
# Spec options under another name than the field of an input config.
_FIELD_OF_OPTION = {"frames": "num_frames", "size": "image_size"}


class TestableTrainer(Protocol):
    """A training run that ends with a test."""

    run_dir: Path
    global_step: int

    @property
    def total_steps(self) -> int: ...

    def train(self) -> Path: ...

    def test(self) -> dict[str, Any]:
        """Return what is written to `results.json`; every rank calls it."""
        ...


def check_run(config: ConfigT, run_dir: str | Path, data_path: str, *inputs: str | Path | None) -> ConfigT:
    """Check a run before it starts or is estimated: encoder, data, and that the run folder can be written.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        data_path: Data set.
        inputs: Other files and folders that the run reads.

    Returns:
        The config with a canonical encoder spec, which is valid in any working directory.

    Raises:
        StillmotionError: Something is missing, or the run would overwrite what it reads.
    """
    config = resolve_encoder(config)
    if not data_path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    check_inputs_not_overwritten(run_dir, data_path, *inputs, encoder_path(config.encoder))
    files.check_writable(run_dir)
    return config


def resolve_encoder(config: ConfigT) -> ConfigT:
    """Return the config with a canonical encoder spec, which is valid in any working directory."""
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or a recipe's name, for its untrained network)")
    return replace(config, encoder=canonical_spec(config.encoder))


def load_initial_encoder(config: FinetuneConfig | DetectConfig, clip_config: ClipConfig) -> Encoder:
    """Load the encoder that a run starts from.

    Args:
        config: Config of the run; the encoder of a recipe, or with --from-scratch, gets random weights by the seed.
        clip_config: Clips of the run; options of the encoder's spec take precedence.

    Returns:
        The encoder with the run's input.
    """
    encoder = load(config.encoder)
    if config.from_scratch or encoder.origin.kind == "recipe":
        torch.manual_seed(config.train.seed)
        encoder = encoder.reinitialized()
    in_spec = {_FIELD_OF_OPTION.get(option, option) for option in encoder.origin.options}
    explicit = clip_config.explicit_values()
    return encoder.with_input(**{name: value for name, value in explicit.items() if name not in in_spec})


def encoder_path(spec: str) -> Path | None:
    """Return the path of an encoder; None for a recipe."""
    parsed = parse_spec(spec)
    return Path(parsed.path) if parsed.kind != "recipe" else None


def run_downstream(
    build: Callable[[ConfigT, Path, torch.device], TestableTrainer], config: ConfigT, run_dir: str | Path
) -> Path:
    """Train and test a run, or resume it.

    Args:
        build: From a config, a run folder and a device to a trainer.
        config: Config that `check_run` returned.
        run_dir: Run folder.

    Returns:
        The run folder.
    """
    with training_session(config.train) as device, lock_run_dir(run_dir):
        return train_and_test(build(resolve_run_precision(config, run_dir, device), Path(run_dir), device))


def train_and_test(trainer: TestableTrainer) -> Path:
    """Train to the end, test, and write `results.json`, unless that was done before.

    Args:
        trainer: Trainer.

    Returns:
        The run folder.
    """
    results_file = trainer.run_dir / RESULTS_FILE
    if trainer.global_step < trainer.total_steps and process_group.get_rank() == 0:
        results_file.unlink(missing_ok=True)
    trainer.train()
    if not process_group.run_on_main(lambda: _is_readable_json(results_file)):
        with progress_bar("testing"):
            results = trainer.test()
        process_group.run_on_main(lambda: files.write_json(results_file, results))
    return trainer.run_dir


def seeded_dropout_mask(seeds: Sequence[tuple[int, ...]], counts: Sequence[int], dim: int, rate: float) -> Tensor:
    """Draw dropout factors that depend on the item and not on its batch.

    Args:
        seeds: Seed of each item, such as (seed, epoch, video, purpose).
        counts: Rows of each item.
        dim: Number of features.
        rate: Dropout rate.

    Returns:
        Factors (sum of counts, dim): 0 or 1 / (1 - rate).
    """
    draws = [
        np.random.default_rng(seed).random((count, dim), np.float32) for seed, count in zip(seeds, counts, strict=True)
    ]
    return torch.from_numpy((np.concatenate(draws) >= rate) / np.float32(1 - rate))
