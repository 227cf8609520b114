"""What runs that start from an encoder share: its network, the clips it takes, and their test."""

import contextlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from stillmotion import distributed
from stillmotion.config.base import ClipsConfig, StartedConfig
from stillmotion.encoders import Encoder, Progress, full_text, load
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
    asked = {"frames": clips.frames, "stride": clips.stride, "size": clips.size}
    return encoder.shown(**{n: v for n, v in asked.items() if v and n not in encoder.origin.options})


def train_and_test(run: Tested, watch: Watch) -> Path:
    """Take a run to its end, test it, and write `results.json`, unless that was done before."""
    first, results = distributed.rank() == 0, run.folder / RESULTS
    if run.done < run.total and first:
        results.unlink(missing_ok=True)
    run.train()
    if not results.exists():
        with watch("testing") if first else contextlib.nullcontext() as progress:
            found = run.test(progress)
        if first:
            results.write_text(json.dumps(found, indent=1))
    distributed.barrier()
    return run.folder


def read_results(folder: str | Path) -> dict[str, Any]:
    """What a finished run measured."""
    try:
        return json.loads((Path(folder) / RESULTS).read_text())
    except OSError:
        raise StillmotionError(f"{folder} has no {RESULTS}; the same command again finishes the run") from None
