"""An encoder: a backbone, a split and an intake. Clips in, one embedding with its static and dynamic halves out.

Shapes: b clips of T frames, T' time steps, h×w cells, D channels; n videos.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.config import Config
from stillmotion.data.paths import PathSet
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.encoders.features import extract
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.motion import motion
from stillmotion.methods.method import Network
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.dense import check_layer, stage_map
from stillmotion.nn.intake import Intake, Normalisation
from stillmotion.nn.split import Embedding, SplitConfig
from stillmotion.nn.weights import load_weights

_PAPERS = Intake(8, 8, 224, Normalisation((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)))


class Vectors(NamedTuple):
    """What videos show and how they move: one row each, (n, D) and of motion (n, M), as float32 arrays.

    As in `Embedding`: halves of clips of fewer than three time steps are (n, 0), and motion where there is none.
    """

    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray


@dataclass(frozen=True)
class Origin:
    """Where an encoder comes from.

    text: names it from any folder. kind: of `ENCODERS`. options: what stands behind the text's @.
    folder: of its run, where results and features are kept; None where it has none.
    config: of the pre-training that built its network; None where that was done elsewhere.
    fresh: builds its network with weights drawn from torch's generator; None where that cannot be done.
    network: by what the network is built again, for those that train on from it; None: by this text.
    """

    text: str = ""
    kind: str = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    config: Config | None = None
    fresh: Callable[[], Backbone] | None = None
    network: Mapping[str, Any] | None = None


class Encoder(nn.Module):
    """A backbone whose per-frame features are split by the same rule as in training, and what it wants to be shown.

    backbone: clips (b, 3, T, H, W) to (b, T', D). split: None takes the library's default.
    intake: None is the papers' clips of 8 frames at stride 8, 224 pixels. layer: features after so many stages.
    """

    def __init__(
        self,
        backbone: Backbone,
        split: SplitConfig | None = None,
        *,
        intake: Intake | None = None,
        layer: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        check_layer(backbone, layer)
        self.backbone = backbone
        self.split = split if split is not None and split.how != "none" else SplitConfig()
        self.intake, self.layer, self.origin = intake or _PAPERS, layer, origin or Origin()

    def forward(self, clips: Tensor) -> Embedding:
        frames, maps = self.seen(clips)
        return self.parts(frames, motion(maps.float()))

    def features(self, clips: Tensor) -> Tensor:
        """One feature per time step of normalised clips, (b, T', D); nothing is split."""
        return self.backbone(clips) if self.layer is None else self.maps(clips).mean((2, 3))

    def seen(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """`features` and `maps` of normalised clips, by one pass."""
        if self.layer is None:
            frames, maps = self.backbone.seen(clips)
            return frames, maps.movedim(1, -1)
        maps = self.maps(clips)
        return maps.mean((2, 3)), maps

    def parts(self, frames: Tensor, motion: Tensor | None = None) -> Embedding:
        """The embedding of what the backbone says of each frame, (b, T', D), and of where things went, (b, M)."""
        frames = frames.float()
        none = frames.new_empty(len(frames), 0)
        static = dynamic = none
        if frames.shape[1] >= self.split.least_frames:
            static, dynamic = self.split(F.normalize(frames, dim=-1) if self.split.normalize else frames)
        return Embedding(frames.mean(1), static, dynamic, none if motion is None else motion, frames)

    def maps(self, clips: Tensor) -> Tensor:
        """Features of every place of normalised clips, (b, T', h, w, D)."""
        return stage_map(self.backbone, clips, self.layer)

    def embed(self, videos: Sequence[str | Path], *, clips: int = 4, crops: int = 1) -> Vectors:
        """The embeddings of video files (or folders of frames), each the mean over evenly spaced clips.

        clips, crops: views of a video. A video that cannot be read raises VideoError.
        """
        found = extract(self, PathSet([Path(video) for video in videos]), clips=clips, crops=crops)
        if found.broken:
            raise VideoError(found.broken[0][1])
        return Vectors(*(getattr(found, part).mean(1) for part in Vectors._fields))

    def shown(
        self,
        *,
        frames: int | None = None,
        stride: int | None = None,
        size: int | None = None,
        fps: float | None = None,
    ) -> Self:
        """The same network, shown other clips where a number is given."""
        changed = copy.copy(self)
        changed.intake = self.intake.changed({"frames": frames, "stride": stride, "size": size, "fps": fps})
        return changed

    def untrained(self) -> "Encoder":
        """The very network that its run began with, in evaluation mode, on the same device."""
        config = self.origin.config
        if config is None or self.origin.kind not in ("pretrain", "recipe"):
            raise StillmotionError(f"{self.name} was trained elsewhere, from an unknown network; leave --untrained out")
        return self._with(first_network(config)).to(self.device).eval()

    def renewed(self) -> "Encoder":
        """The same network with weights drawn from torch's generator."""
        if self.origin.fresh is None:
            raise StillmotionError(f"a {self.origin.kind} model has no fresh weights here; leave --untrained out")
        return self._with(self.origin.fresh())

    def _with(self, backbone: Backbone) -> "Encoder":
        return Encoder(backbone, self.split, intake=self.intake, layer=self.layer, origin=self.origin)

    @property
    def name(self) -> str:
        """The end of the text that names it."""
        return Path(self.origin.text).name or "own"

    @property
    def folder(self) -> Path | None:
        """Of its run, where results and features are kept."""
        return self.origin.folder

    @property
    def drawn(self) -> SyntheticConfig:
        """How its run draws synthetic videos."""
        return self.origin.config.data.synthetic if self.origin.config else SyntheticConfig()

    @property
    def seed(self) -> int:
        """Of its run's synthetic videos."""
        return self.origin.config.train.seed if self.origin.config else 0

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


def first_network(config: Config) -> Backbone:
    """The very backbone that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = Network(config.method.model).backbone
    if config.method.model.weights:
        load_weights(backbone, config.method.model.weights)
    return backbone.eval()
