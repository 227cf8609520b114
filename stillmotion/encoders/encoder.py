"""An encoder: a backbone, a split and an intake. Clips in, one embedding with its static and dynamic halves out.

Shapes: b clips of T frames, T' time steps, h×w cells, D channels; n videos."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.encoders.embedding import Embedding, Embeddings
from stillmotion.encoders.feature_extraction import extract_features, resolve_num_clips
from stillmotion.errors import NonFiniteError, StillmotionError, VideoError
from stillmotion.functional.motion import motion_embedding
from stillmotion.methods.network import EmbeddingNetwork
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.models.backbones import Backbone
from stillmotion.models.feature_maps import check_stage, feature_map_at
from stillmotion.models.input_config import InputConfig, Normalization
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.pretrain.config import PretrainConfig

# Of frames whose patches are matched: rows and pixels of height, at the least, and columns for a row.
_MIN_PATCH_ROWS, _MIN_HEIGHT, _ASPECT = 8, 112, 5 / 4
_DEFAULT_INPUT = InputConfig(8, 8, 224, Normalization((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)))


@dataclass(frozen=True)
class EncoderOrigin:
    """Where an encoder comes from.

    spec: names it from any folder. kind: of `ENCODERS`. options: what stands behind the text's @.
    run_dir: of its run, where results and features are kept; None where it has none.
    pretrain_config: of the pre-training that built its network; None where that was done elsewhere.
    build_fresh: builds its network with weights drawn from torch's generator; None where that cannot be done.
    architecture: by what the network is built again, for those that train on from it; None: by this text.
    """

    spec: str = ""
    kind: str = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    run_dir: Path | None = None
    pretrain_config: PretrainConfig | None = None
    build_fresh: Callable[[], Backbone] | None = None
    architecture: Mapping[str, Any] | None = None


class Encoder(nn.Module):
    """A backbone whose per-frame features are split by the same rule as in training, and what it wants to be shown.

    backbone: clips (b, 3, T, H, W) to (b, T', D). split: None takes the library's default.
    input_config: None is the papers' clips of 8 frames at stride 8, 224 pixels. layer: features after so many stages.
    eval_input: what it is shown of a video that is embedded whole. None is clips as the intake has them; and where frames
        are forward_features one by one, some that are spread over the video, small: what moves is told by how patches match.
    """

    def __init__(
        self,
        backbone: Backbone,
        static_dynamic: StaticDynamicConfig | None = None,
        *,
        input_config: InputConfig | None = None,
        eval_input: InputConfig | None = None,
        layer: int | None = None,
        origin: EncoderOrigin | None = None,
    ) -> None:
        super().__init__()
        check_stage(backbone, layer)
        self.backbone = backbone
        self.static_dynamic = (
            static_dynamic if static_dynamic is not None and static_dynamic.method != "none" else StaticDynamicConfig()
        )
        self.input_config, self.layer, self.origin = input_config or _DEFAULT_INPUT, layer, origin or EncoderOrigin()
        self.eval_input = eval_input or _default_eval_input(backbone, self.input_config)

    def forward(self, clips: Tensor) -> Embedding:
        if not self.backbone.is_framewise:  # it has seen motion itself, which tells more than matches
            found = self.decompose(self.frame_features(clips))
            return found._replace(motion=found.dynamic)
        frames, maps = self.forward_features(clips)
        return self.decompose(frames, motion_embedding(maps.float()))

    def frame_features(self, clips: Tensor) -> Tensor:
        """One feature per time step of normalised clips, (b, T', D); nothing is split."""
        return self.backbone(clips) if self.layer is None else self.feature_maps(clips).mean((2, 3))

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """`frame_features` and `feature_maps` of normalised clips, by one pass."""
        if self.layer is None:
            frames, maps = self.backbone.forward_features(clips)
            return frames, maps.movedim(1, -1)
        maps = self.feature_maps(clips)
        return maps.mean((2, 3)), maps

    def decompose(self, frames: Tensor, motion: Tensor | None = None) -> Embedding:
        """The embedding of what the backbone says of each frame, (b, T', D), and of where things went, (b, M)."""
        frames = frames.float()
        if not torch.isfinite(frames).all():
            raise NonFiniteError(f"{self.name} makes NaN or infinity of a clip; it diverged when it was trained")
        none = frames.new_empty(len(frames), 0)
        static = dynamic = none
        if frames.shape[1] >= self.static_dynamic.min_frames:
            static, dynamic = self.static_dynamic(
                F.normalize(frames, dim=-1) if self.static_dynamic.normalize else frames
            )
        return Embedding(frames.mean(1), static, dynamic, none if motion is None else motion, frames)

    def feature_maps(self, clips: Tensor) -> Tensor:
        """Features of every place of normalised clips, (b, T', h, w, D)."""
        return feature_map_at(self.backbone, clips, self.layer)

    def embed(self, videos: Sequence[str | Path], *, num_clips: int | None = None, num_crops: int = 1) -> Embeddings:
        """The embeddings of video files (or folders of frames), each the mean over evenly spaced clips.

        num_clips, num_crops: views of a video; None as in `clips_of`. A video that cannot be read raises VideoError.
        """
        files = PathDataset([Path(video) for video in videos])
        found = extract_features(
            self, files, num_clips=resolve_num_clips(self, num_clips, default=4), num_crops=num_crops
        )
        if found.failed:
            raise VideoError(found.failed[0][1])
        return Embeddings(*(getattr(found, part).mean(1) for part in Embeddings._fields))

    def with_input(
        self,
        *,
        num_frames: int | None = None,
        stride: int | None = None,
        image_size: int | None = None,
        fps: float | None = None,
    ) -> Self:
        """The same network, shown other clips where a number is given."""
        changed, asked = (
            copy.copy(self),
            {"num_frames": num_frames, "stride": stride, "image_size": image_size, "fps": fps},
        )
        changed.input_config, changed.eval_input = self.input_config.replace(asked), self.eval_input.replace(asked)
        return changed

    def untrained(self) -> "Encoder":
        """The very network that its run began with, in evaluation mode, on the same device."""
        config = self.origin.pretrain_config
        if config is None or self.origin.kind not in ("pretrain", "recipe"):
            raise StillmotionError(
                f"{self.name} was trained elsewhere, from an unknown network; leave --compare-untrained out"
            )
        return self._with_backbone(build_initial_backbone(config)).to(self.device).eval()

    def reinitialized(self) -> "Encoder":
        """The same network with weights drawn from torch's generator."""
        if self.origin.build_fresh is None:
            raise StillmotionError(
                f"a {self.origin.kind} model has no fresh weights here; leave --compare-untrained out"
            )
        return self._with_backbone(self.origin.build_fresh())

    def _with_backbone(self, backbone: Backbone) -> "Encoder":
        return Encoder(
            backbone,
            self.static_dynamic,
            input_config=self.input_config,
            eval_input=self.eval_input,
            layer=self.layer,
            origin=self.origin,
        )

    @property
    def name(self) -> str:
        """The end of the text that names it."""
        return Path(self.origin.spec).name or "own"

    @property
    def run_dir(self) -> Path | None:
        """Of its run, where results and features are kept."""
        return self.origin.run_dir

    @property
    def synthetic_config(self) -> SyntheticConfig:
        """How its run draws synthetic videos."""
        return self.origin.pretrain_config.data.synthetic if self.origin.pretrain_config else SyntheticConfig()

    @property
    def seed(self) -> int:
        """Of its run's synthetic videos."""
        return self.origin.pretrain_config.train.seed if self.origin.pretrain_config else 0

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


def _default_eval_input(backbone: Backbone, input_config: InputConfig) -> InputConfig:
    if not backbone.is_framewise:
        return input_config
    if not backbone.has_patch_grid:
        return input_config.over_whole_video(input_config.image_size, input_config.image_size)
    patch = backbone.size_divisor
    rows = min(max(_MIN_PATCH_ROWS, -(-_MIN_HEIGHT // patch)), max(1, input_config.image_size // patch))
    return input_config.over_whole_video(rows * patch, round(rows * _ASPECT) * patch)


def build_initial_backbone(config: PretrainConfig) -> Backbone:
    """The very backbone that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = EmbeddingNetwork(config.method.model).backbone
    if config.method.model.init_weights:
        load_weights(backbone, config.method.model.init_weights)
    return backbone.eval()
