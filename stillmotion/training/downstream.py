"""What runs that start from an encoder share: its network, the clips it takes, and their test."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, ProgressCallback, canonical_spec, load
from stillmotion.encoders.loading import parse_spec
from stillmotion.errors import StillmotionError
from stillmotion.training.config import ClipConfig, EncoderRunConfig
from stillmotion.training.run_dir import RESULTS_FILE, _is_readable_json
from stillmotion.utils import files

Watch = Callable[
    [str], AbstractContextManager[ProgressCallback | None]
]  # given a word for what goes on, shows its progress
ConfigT = TypeVar("ConfigT", bound=EncoderRunConfig)


def unwatched(what: str) -> AbstractContextManager[ProgressCallback | None]:
    """Shows nothing."""
    return contextlib.nullcontext()


class TestableTrainer(Protocol):
    """A run that ends with a test."""

    run_dir: Path
    global_step: int

    @property
    def total_steps(self) -> int: ...

    def train(self) -> Path: ...

    def test(self, progress: ProgressCallback | None) -> dict[str, Any]:
        """What is written to `results.json`; every rank calls it."""
        ...


def resolve_encoder(config: ConfigT) -> ConfigT:
    """The configuration whose encoder is named so that it is found from any folder."""
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or a recipe's name, for its untrained network)")
    return replace(config, encoder=canonical_spec(config.encoder))


def load_initial_encoder(config: EncoderRunConfig, clip_config: ClipConfig) -> Encoder:
    """The encoder that a run starts from, on its clips; with fresh weights if it is a recipe or is asked to be."""
    encoder = load(config.encoder)
    if config.untrained or encoder.origin.kind == "recipe":
        torch.manual_seed(config.train.seed)
        encoder = encoder.reinitialized()
    return encoder.with_input(
        **{
            n: v
            for n, v in clip_config.explicit_values().items()
            if n not in {{"frames": "num_frames", "size": "image_size"}.get(o, o) for o in encoder.origin.options}
        }
    )


def encoder_path(spec: str) -> Path | None:
    """Where the encoder of this text lies; None of a recipe."""
    named = parse_spec(spec)
    return Path(named.path) if named.kind != "recipe" else None


def train_and_test(trainer: TestableTrainer, watch: Watch) -> Path:
    """Take a run to its end, test it, and write `results.json`, unless that was done before."""
    first, results = process_group.get_rank() == 0, trainer.run_dir / RESULTS_FILE
    if trainer.global_step < trainer.total_steps and first:
        results.unlink(missing_ok=True)
    trainer.train()
    if not process_group.run_on_main(lambda: _is_readable_json(results)):
        with watch("testing") if first else contextlib.nullcontext() as progress:
            found = trainer.test(progress)
        process_group.run_on_main(lambda: files.write_json(results, found))
    return trainer.run_dir
