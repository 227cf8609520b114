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
from stillmotion.encoders.features import clips_of, extract
from stillmotion.errors import NonFiniteError, StillmotionError, VideoError
from stillmotion.functional.motion import motion
from stillmotion.methods.method import Network
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.dense import check_layer, stage_map
from stillmotion.nn.intake import Intake, Normalisation
from stillmotion.nn.split import Embedding, SplitConfig
from stillmotion.nn.weights import load_weights

# Of frames whose patches are matched: rows and pixels of height, at the least, and columns for a row.
_ROWS, _LEAST_HEIGHT, _ASPECT = 8, 112, 5 / 4
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
    survey: what it is shown of a video that is embedded whole. None is clips as the intake has them; and where frames
        are seen one by one, some that are spread over the video, small: what moves is told by how patches match.
    """

    def __init__(
        self,
        backbone: Backbone,
        split: SplitConfig | None = None,
        *,
        intake: Intake | None = None,
        survey: Intake | None = None,
        layer: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        check_layer(backbone, layer)
        self.backbone = backbone
        self.split = split if split is not None and split.how != "none" else SplitConfig()
        self.intake, self.layer, self.origin = intake or _PAPERS, layer, origin or Origin()
        self.survey = survey or _surveying(backbone, self.intake)

    def forward(self, clips: Tensor) -> Embedding:
        if not self.backbone.of_images:  # it has seen motion itself, which tells more than matches
            found = self.parts(self.features(clips))
            return found._replace(motion=found.dynamic)
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
        if not torch.isfinite(frames).all():
            raise NonFiniteError(f"{self.name} makes NaN or infinity of a clip; it diverged when it was trained")
        none = frames.new_empty(len(frames), 0)
        static = dynamic = none
        if frames.shape[1] >= self.split.least_frames:
            static, dynamic = self.split(F.normalize(frames, dim=-1) if self.split.normalize else frames)
        return Embedding(frames.mean(1), static, dynamic, none if motion is None else motion, frames)

    def maps(self, clips: Tensor) -> Tensor:
        """Features of every place of normalised clips, (b, T', h, w, D)."""
        return stage_map(self.backbone, clips, self.layer)

    def embed(self, videos: Sequence[str | Path], *, clips: int | None = None, crops: int = 1) -> Vectors:
        """The embeddings of video files (or folders of frames), each the mean over evenly spaced clips.

        clips, crops: views of a video; None as in `clips_of`. A video that cannot be read raises VideoError.
        """
        files = PathSet([Path(video) for video in videos])
        found = extract(self, files, clips=clips_of(self, clips, usual=4), crops=crops)
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
        changed, asked = copy.copy(self), {"frames": frames, "stride": stride, "size": size, "fps": fps}
        changed.intake, changed.survey = self.intake.changed(asked), self.survey.changed(asked)
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
        return Encoder(
            backbone, self.split, intake=self.intake, survey=self.survey, layer=self.layer, origin=self.origin
        )

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


def _surveying(backbone: Backbone, intake: Intake) -> Intake:
    if not backbone.of_images:
        return intake
    if not backbone.patch_grid:
        return intake.spread(intake.size, intake.size)
    patch = backbone.size_step
    rows = min(max(_ROWS, -(-_LEAST_HEIGHT // patch)), max(1, intake.size // patch))
    return intake.spread(rows * patch, round(rows * _ASPECT) * patch)


def first_network(config: Config) -> Backbone:
    """The very backbone that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = Network(config.method.model).backbone
    if config.method.model.weights:
        load_weights(backbone, config.method.model.weights)
    return backbone.eval()
