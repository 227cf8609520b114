"""What runs that start from an encoder share: its network, the clips it takes, and their test."""

import contextlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from stillmotion import distributed, files
from stillmotion.config.base import ClipsConfig, StartedConfig
from stillmotion.encoders import Encoder, Progress, full_text, load
from stillmotion.encoders.load import read_text
from stillmotion.errors import StillmotionError

RESULTS = "results.json"
Watch = Callable[[str], AbstractContextManager[Progress | None]]  # given a word for what goes on, shows its progress
Started = TypeVar("Started", bound=StartedConfig)


def unwatched(what: str) -> AbstractContextManager[Progress | None]:
    """Shows nothing."""
    return contextlib.nullcontext()


class Tested(Protocol):
    """A run that ends with a test."""

    folder: Path
    done: int

    @property
    def total(self) -> int: ...

    def train(self) -> Path: ...

    def test(self, progress: Progress | None) -> dict[str, Any]:
        """What is written to `results.json`; every rank calls it."""
        ...


def located(config: Started) -> Started:
    """The configuration whose encoder is named so that it is found from any folder."""
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or a recipe's name, for its untrained network)")
    return replace(config, encoder=full_text(config.encoder))


def start(config: StartedConfig, clips: ClipsConfig) -> Encoder:
    """The encoder that a run starts from, on its clips; with fresh weights if it is a recipe or is asked to be."""
    encoder = load(config.encoder)
    if config.untrained or encoder.origin.kind == "recipe":
        torch.manual_seed(config.train.seed)
        encoder = encoder.renewed()
    return encoder.shown(**{n: v for n, v in clips.asked().items() if n not in encoder.origin.options})


def place_of(encoder: str) -> Path | None:
    """Where the encoder of this text lies; None of a recipe."""
    named = read_text(encoder)
    return Path(named.path) if named.kind != "recipe" else None


def train_and_test(run: Tested, watch: Watch) -> Path:
    """Take a run to its end, test it, and write `results.json`, unless that was done before."""
    first, results = distributed.rank() == 0, run.folder / RESULTS
    if run.done < run.total and first:
        results.unlink(missing_ok=True)
    run.train()
    if not distributed.on_first(lambda: _is_whole(results)):
        with watch("testing") if first else contextlib.nullcontext() as progress:
            found = run.test(progress)
        distributed.on_first(lambda: files.write_json(results, found))
    return run.folder


def read_results(folder: str | Path) -> dict[str, Any]:
    """What a finished run measured."""
    try:
        return files.read_json(Path(folder) / RESULTS, remedy="the same command again makes it anew")
    except OSError:
        raise StillmotionError(f"{folder} has no {RESULTS}; the same command again finishes the run") from None


def _is_whole(results: Path) -> bool:
    """Whether the results are there; torn ones are named, and are to be made anew."""
    if not results.exists():
        return False
    try:
        files.read_json(results, remedy="it is made anew")
    except StillmotionError as error:
        print(error, file=sys.stderr)
        return False
    return True
