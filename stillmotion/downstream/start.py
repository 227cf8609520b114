"""What runs that start from an encoder share: its network, the clips it takes, and their results."""

import contextlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from stillmotion.config import Config
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.encoders import fresh, load_encoder, origin, read_spec
from stillmotion.evaluate.features import Progress
from stillmotion.nn.backbones import Backbone

RESULTS = "results.json"
Watch = Callable[[str], AbstractContextManager[Progress | None]]  # given a word for what goes on, shows its progress


def unwatched(what: str) -> AbstractContextManager[Progress | None]:
    """Shows nothing."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Start:
    """Where a run starts from.

    told: the encoder's configuration, with the clips that the run takes.
    began: what a folder keeps to build the network again.
    """

    backbone: Backbone
    told: Config
    began: dict[str, Any]


class Clips(Protocol):
    """What a run asks of clips; 0 takes the encoder's own, and what stands behind the encoder's @ comes first."""

    @property
    def frames(self) -> int: ...

    @property
    def stride(self) -> int: ...

    @property
    def size(self) -> int: ...


def start(encoder: str, clips: Clips, *, untrained: bool, seed: int) -> Start:
    """The network of an encoder that `load_encoder` knows; with fresh weights if it is a recipe or is asked to be."""
    spec, began = read_spec(encoder), origin(encoder)
    network, told = load_encoder(encoder)
    if untrained or spec.kind == "recipe":
        torch.manual_seed(seed)
        network = fresh(began["kind"], told)
    asked: dict[str, Any] = {"frames": clips.frames, "stride": clips.stride, "size": clips.size}
    wanted = {name: value for name, value in asked.items() if value and name not in spec.options}
    return Start(network.backbone, replace(told, data=replace(told.data, **wanted)), began)


def read_results(folder: str | Path) -> dict[str, Any]:
    """What a finished run measured."""
    try:
        return json.loads((Path(folder) / RESULTS).read_text())
    except OSError:
        raise StillmotionError(f"{folder} has no {RESULTS}; the same command again finishes the run") from None
