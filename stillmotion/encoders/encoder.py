"""The encoder: a backbone, its static/dynamic decomposition and its input; clips in, embeddings out.

Shapes: b clips of T frames, T' time steps, h×w cells, D channels; n videos.
"""

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
from stillmotion.functional.token_motion import motion_embedding
from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.models.backbones import Backbone
from stillmotion.models.feature_maps import check_stage, feature_map_at
from stillmotion.models.input_config import InputConfig, Normalization

# Frames whose patches are matched: minimum rows and pixels of height, and columns per row.
_MIN_PATCH_ROWS, _MIN_HEIGHT, _ASPECT = 8, 112, 5 / 4
_DEFAULT_INPUT = InputConfig(8, 8, 224, Normalization((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)))


@dataclass(frozen=True)
class EncoderOrigin:
    """Where an encoder comes from.

    Args:
        spec: Canonical spec string, valid from any working folder.
        kind: Kind of encoder, a key of `ENCODER_KINDS`.
        options: Options after the @ of the spec.
        run_dir: Run folder, where results and features are stored; None if it has none.
        pretrain_config: `PretrainConfig` of its network; None for other networks.
        build_fresh: Builds its network with new random weights; None if that is not possible.
        build_initial: Builds its network with the initial weights of its run; None if they are not known.
        architecture: Description from which the network can be rebuilt; None if the spec is enough.
    """

    spec: str = ""
    kind: str = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    run_dir: Path | None = None
    pretrain_config: Any = None
    build_fresh: Callable[[], Backbone] | None = None
    build_initial: Callable[[], Backbone] | None = None
    architecture: Mapping[str, Any] | None = None


class Encoder(nn.Module):
    """A frozen backbone with the static/dynamic decomposition of its training and the input that it takes.

    Calling it maps normalized clips (b, 3, T, H, W) to an `Embedding`.

    Args:
        backbone: Network from clips (b, 3, T, H, W) to features (b, T', D).
        static_dynamic: Static/dynamic decomposition; None is the library's default.
        input_config: Clips that it was trained on; None is the papers' 8 frames at stride 8 and 224 pixels.
        eval_input: Input used to embed whole videos. Default: `input_config` for clip models; for image models, small
            frames spread over the whole video, whose patches are matched to find motion.
        layer: Use the features after this many stages of the backbone; None is the last.
        origin: Where the encoder comes from.
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
        if not self.backbone.is_framewise:  # a clip model represents motion itself, better than matched patches
            embedding = self.decompose(self.frame_features(clips))
            return embedding._replace(motion=embedding.dynamic)
        frames, maps = self.forward_features(clips)
        return self.decompose(frames, motion_embedding(maps.float()))

    def frame_features(self, clips: Tensor) -> Tensor:
        """Return one feature per time step of normalized clips, (b, T', D), without decomposition."""
        return self.backbone(clips) if self.layer is None else self.feature_maps(clips).mean((2, 3))

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """Return `frame_features` and `feature_maps` of normalized clips in one pass."""
        if self.layer is None:
            frames, maps = self.backbone.forward_features(clips)
            return frames, maps.movedim(1, -1)
        maps = self.feature_maps(clips)
        return maps.mean((2, 3)), maps

    def decompose(self, frames: Tensor, motion: Tensor | None = None, field: Tensor | None = None) -> Embedding:
        """Decompose per-frame features into an embedding.

        Args:
            frames: Features of the backbone, (b, T', D).
            motion: Motion vectors, (b, M), or None.
            field: Motion fields, (b, T-1, h, w, 3), or None.

        Returns:
            The embedding.

        Raises:
            NonFiniteError: If the features are NaN or infinite.
        """
        frames = frames.float()
        if not torch.isfinite(frames).all():
            raise NonFiniteError(f"{self.name} returns NaN or infinite features; its training probably diverged.")
        static = dynamic = empty = frames.new_empty(len(frames), 0)
        if frames.shape[1] >= self.static_dynamic.min_frames:
            states = F.normalize(frames, dim=-1) if self.static_dynamic.normalize else frames
            static, dynamic = decompose(states, self.static_dynamic)
        motion, field = (empty if x is None else x.flatten(1) for x in (motion, field))
        return Embedding(frames.mean(1), static, dynamic, motion, field, frames)

    def feature_maps(self, clips: Tensor) -> Tensor:
        """Return the feature maps of normalized clips, (b, T', h, w, D)."""
        return feature_map_at(self.backbone, clips, self.layer)

    def embed(
        self, videos: str | Path | Sequence[str | Path], *, num_clips: int | None = None, num_crops: int = 1
    ) -> Embeddings:
        """Embed video files or folders of frames; each row is the mean over evenly spaced clips.

        Args:
            videos: Path of a video, or paths of several.
            num_clips: Clips per video; default 4, or 1 if the encoder samples frames over the whole video.
            num_crops: Crops per clip: 1 or 3.

        Returns:
            One row per video. The vectors are not L2-normalized (see `Embedding`).

        Raises:
            VideoError: If a video cannot be read.
            StillmotionError: If no video is given.
        """
        paths = [Path(videos)] if isinstance(videos, str | Path) else [Path(video) for video in videos]
        if not paths:
            raise StillmotionError("No videos to embed; give at least one path.")
        num_clips = resolve_num_clips(self, num_clips, default=4)
        features = extract_features(self, PathDataset(paths), num_clips=num_clips, num_crops=num_crops)
        if features.failed:
            raise VideoError(features.failed[0][1])
        return Embeddings(*(getattr(features, field).mean(1) for field in Embeddings._fields))

    def with_input(
        self,
        *,
        num_frames: int | None = None,
        stride: int | None = None,
        image_size: int | None = None,
        fps: float | None = None,
    ) -> Self:
        """Return a copy of the encoder with other input settings; None keeps a setting.

        Args:
            num_frames: Frames per clip.
            stride: Frames from one to the next.
            image_size: Crop size in pixels.
            fps: Frame rate to which videos are resampled; 0 is their own.

        Returns:
            The copy, which shares the network.
        """
        changes = {"num_frames": num_frames, "stride": stride, "image_size": image_size, "fps": fps}
        encoder = copy.copy(self)
        encoder.input_config, encoder.eval_input = self.input_config.replace(changes), self.eval_input.replace(changes)
        return encoder

    def untrained(self) -> "Encoder":
        """Return the encoder with the initial weights of its run, in evaluation mode, on the same device."""
        if self.origin.build_initial is None:
            raise StillmotionError(f"{self.name} has no known initial weights. Omit --compare-untrained.")
        return self._with_backbone(self.origin.build_initial()).to(self.device).eval()

    def reinitialized(self) -> "Encoder":
        """Return the encoder with new random weights from torch's default generator."""
        if self.origin.build_fresh is None:
            raise StillmotionError(
                f"Random initialization is not supported for {self.origin.kind} models. Use pretrained weights."
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
        """Last part of its spec."""
        return Path(self.origin.spec).name or "own"

    @property
    def run_dir(self) -> Path | None:
        """Run folder, where results and features are stored; None if it has none."""
        return self.origin.run_dir

    @property
    def synthetic_config(self) -> SyntheticConfig:
        """Settings of the synthetic videos of its run."""
        return self.origin.pretrain_config.data.synthetic if self.origin.pretrain_config else SyntheticConfig()

    @property
    def seed(self) -> int:
        """Seed of the synthetic videos of its run."""
        return self.origin.pretrain_config.train.seed if self.origin.pretrain_config else 0

    @property
    def device(self) -> torch.device:
        """Device of its weights."""
        return next(self.parameters()).device


def _default_eval_input(backbone: Backbone, input_config: InputConfig) -> InputConfig:
    if not backbone.is_framewise:
        return input_config
    if not backbone.has_patch_grid:
        return input_config.over_whole_video(input_config.image_size, input_config.image_size)
    patch = backbone.size_divisor
    rows = min(max(_MIN_PATCH_ROWS, -(-_MIN_HEIGHT // patch)), max(1, input_config.image_size // patch))
    return input_config.over_whole_video(rows * patch, round(rows * _ASPECT) * patch)
