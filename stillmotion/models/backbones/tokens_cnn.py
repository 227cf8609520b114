"""Small 3D CNN on the patch tokens of a frozen image model: the image model describes content, the CNN motion.

The image model is loaded from its own files and stays frozen; its weights are not part of the backbone's state dict.
Precomputed tokens can be given instead of clips, so that training takes minutes.
Shapes: B clips, T frames, h×w tokens of E channels, c×c cells, D = channels · c² features.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.token_motion import token_matches
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import conv_bn_relu, init_conv_weights

if TYPE_CHECKING:  # it imports backbones
    from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel, ImageModelConfig


class TokensCNN(Backbone):
    """Clips (B, 3, T, H, W), or their tokens (B, E, T, h, w), to features (B, T', D).

    Args:
        image_model: Frozen image model.
        channels: Channels of each stage: the first is a 1×1×1 convolution, the others are 3×3×3.
        grid_size: Cells c per side; the means over c×c cells of a frame are concatenated, so that features are local.
        per_frame_features: Temporal stride 1; False halves time in the second stage.
        match_radius: Search radius r of `token_matches`, whose (2r+1)² channels replace the tokens, so that the network
            sees motion without appearance. 0 uses the tokens.
    """

    def __init__(
        self,
        image_model: "FrozenImageModel",
        channels: Sequence[int],
        *,
        grid_size: int,
        per_frame_features: bool,
        match_radius: int = 0,
    ) -> None:
        super().__init__()
        self._frozen = _UnregisteredModule(image_model)
        self.match_radius = match_radius
        self.token_channels = (2 * match_radius + 1) ** 2 if match_radius else image_model.out_features
        inputs = (self.token_channels, *channels[:-1])
        stages = []
        for index, (inner, outer) in enumerate(zip(inputs, channels, strict=True)):
            time = 1 if per_frame_features or index != 1 else 2
            stages.append(conv_bn_relu(inner, outer, (1, 1, 1) if index == 0 else (3, 3, 3), stride=(time, 1, 1)))
        self.layers = nn.ModuleList(stages)
        self.grid_size = grid_size
        self.map_channels = channels[-1]
        self.out_features = channels[-1] * grid_size**2
        self.stage_prefixes = tuple((f"layers.{index}",) for index in range(len(channels)))
        self.min_size = self.size_divisor = image_model.patch_size
        init_conv_weights(self)

    @property
    def image_model(self) -> "FrozenImageModel":
        """Frozen image model."""
        return self._frozen.image_model

    @torch.no_grad()
    def compute_tokens(self, clips: Tensor) -> Tensor:
        """Compute tokens (B, E, T, h, w) of normalized clips (B, 3, T, H, W), or the matches that replace them.

        A token has mean 0 and variance 1. The last frame has the matches of the one before.
        """
        grid = self.image_model.patch_grid(*clips.shape[-2:])
        tokens = self.image_model.patch_tokens(clips.transpose(1, 2).flatten(0, 1))
        tokens = F.layer_norm(tokens.float(), tokens.shape[-1:]).to(clips.dtype)
        tokens = tokens.unflatten(0, (len(clips), -1)).unflatten(2, grid)
        if self.match_radius:
            matches = token_matches(tokens, radius=self.match_radius)
            tokens = torch.cat([matches, matches[:, -1:]], 1)
        return tokens.movedim(-1, 1)

    def _trunk(self, clips: Tensor) -> Tensor:
        h = self.compute_tokens(clips) if clips.shape[1] == 3 else clips
        h = h.contiguous(memory_format=torch.channels_last_3d)
        for layer in self.layers[:-1]:
            h = layer(h)
        return h

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.layers[-1](h)

    def pool(self, feature_map: Tensor) -> Tensor:
        cells = F.adaptive_avg_pool3d(feature_map, (feature_map.shape[2], self.grid_size, self.grid_size))
        return cells.movedim(2, 1).flatten(2)

    def _check_input(self, clips: Tensor) -> None:
        if clips.ndim != 5 or clips.shape[1] != self.token_channels:
            super()._check_input(clips)
        elif not clips.is_floating_point():
            raise StillmotionError(f"Tokens are {clips.dtype}; expected floats.")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self.image_model._apply(fn)
        return super()._apply(fn, recurse)


class _UnregisteredModule:
    """Holds a module that is not saved, trained or copied with its owner."""

    def __init__(self, image_model: "FrozenImageModel") -> None:
        self.image_model = image_model

    def __deepcopy__(self, memo: dict[int, Any]) -> "_UnregisteredModule":
        return self


def tokens_cnn(
    *,
    per_frame_features: bool = True,
    image_model: "ImageModelConfig | None" = None,
    channels: Sequence[int] = (16, 32),
    grid_size: int = 1,
    match_radius: int = 0,
) -> Backbone:
    """3D CNN on the tokens of a frozen image model.

    Args:
        per_frame_features: As in `TokensCNN`.
        image_model: Image model; None builds a tiny one with random weights.
        channels: As in `TokensCNN`.
        grid_size: As in `TokensCNN`.
        match_radius: As in `TokensCNN`.

    Raises:
        StillmotionError: If an option is out of range.
    """
    from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig, load_image_model

    if len(channels) < 2 or min(channels) < 1:
        raise StillmotionError(f"channels is {tuple(channels)}; must be two or more positive numbers.")
    if grid_size < 1:
        raise StillmotionError(f"grid_size is {grid_size}; must be at least 1 (the mean over a frame).")
    frozen = load_image_model(image_model or ImageModelConfig(family="dinov2", arch="tiny"))
    return TokensCNN(
        frozen, channels, grid_size=grid_size, per_frame_features=per_frame_features, match_radius=match_radius
    )
