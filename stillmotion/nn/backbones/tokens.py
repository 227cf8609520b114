"""A small 3D CNN on the tokens of a frozen image transformer: this one says what is seen, that one what happens.

The transformer is read from its own files and stays as it is: it has no gradient, and its weights are no part of the
backbone's. Tokens that were computed once can be given in place of clips, by which training takes minutes.
Shapes: B clips, T frames, h×w tokens of E channels, c×c cells, D = channels · c² features.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.backbones.layers import Conv3d, initialise_convolutions

if TYPE_CHECKING:  # which builds on backbones itself
    from stillmotion.nn.images import ImagesConfig, ImageTokens


class TokensCNN(Backbone):
    """Clips (B, 3, T, H, W), or their tokens (B, E, T, h, w), to features (B, T', D).

    images: the frozen transformer. channels: width of each stage: the first mixes each token's own, and the others look
        around in time and space.
    cells: c; features are means over the c×c parts of a frame, side by side, so that they tell what is where.
    keep_time: temporal stride 1; False halves time in the second stage.
    """

    def __init__(self, images: "ImageTokens", channels: Sequence[int], *, cells: int, keep_time: bool) -> None:
        super().__init__()
        self._frozen = _Frozen(images)
        inputs = (images.width, *channels[:-1])
        stages = []
        for index, (inner, outer) in enumerate(zip(inputs, channels, strict=True)):
            time = 1 if keep_time or index != 1 else 2
            stages.append(
                nn.Sequential(
                    Conv3d(inner, outer, 1, bias=False)
                    if index == 0
                    else Conv3d(inner, outer, 3, stride=(time, 1, 1), padding=1, bias=False),
                    nn.BatchNorm3d(outer),
                    nn.ReLU(inplace=True),
                )
            )
        self.layers = nn.ModuleList(stages)
        self.cells = cells
        self.map_width = channels[-1]
        self.width = channels[-1] * cells**2
        self.stages = tuple((f"layers.{index}",) for index in range(len(channels)))
        self.least_size = self.size_step = images.patch
        initialise_convolutions(self)

    @property
    def images(self) -> "ImageTokens":
        """The frozen transformer."""
        return self._frozen.images

    @torch.no_grad()
    def tokens(self, clip: Tensor) -> Tensor:
        """The tokens (B, E, T, h, w) of normalised clips (B, 3, T, H, W), each of mean 0 and variance 1."""
        grid = self.images.grid(*clip.shape[-2:])
        found = self.images.tokens(clip.transpose(1, 2).flatten(0, 1))
        found = F.layer_norm(found.float(), found.shape[-1:]).to(clip.dtype)
        return found.unflatten(0, (len(clip), -1)).unflatten(2, grid).movedim(-1, 1)

    def _early(self, clip: Tensor) -> Tensor:
        h = self.tokens(clip) if clip.shape[1] == 3 else clip
        h = h.contiguous(memory_format=torch.channels_last_3d)
        for layer in self.layers[:-1]:
            h = layer(h)
        return h

    def _last(self, h: Tensor) -> Tensor:
        return self.layers[-1](h)

    def pooled(self, found: Tensor) -> Tensor:
        cells = F.adaptive_avg_pool3d(found, (found.shape[2], self.cells, self.cells))
        return cells.movedim(2, 1).flatten(2)

    def _check(self, clip: Tensor) -> None:
        if clip.ndim != 5 or clip.shape[1] != self.images.width:
            super()._check(clip)
        elif not clip.is_floating_point():
            raise StillmotionError(f"tokens are {clip.dtype}; a backbone needs floats, as `tokens` gives them")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self.images._apply(fn)
        return super()._apply(fn, recurse)


class _Frozen:
    """Holds a module that is neither saved nor trained with what holds it, nor copied with it."""

    def __init__(self, images: "ImageTokens") -> None:
        self.images = images

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Frozen":
        return self


def tokens_cnn(
    *,
    keep_time: bool = True,
    images: "ImagesConfig | None" = None,
    channels: Sequence[int] = (16, 32),
    cells: int = 1,
) -> Backbone:
    """A 3D CNN on frozen tokens; images: None makes a tiny transformer up. Other arguments as in `TokensCNN`."""
    from stillmotion.nn.images import ImagesConfig, load_images

    if len(channels) < 2 or min(channels) < 1:
        raise StillmotionError(f"channels are {tuple(channels)}; tokens_cnn needs at least two positive widths")
    if cells < 1:
        raise StillmotionError(f"cells is {cells}; tokens_cnn needs 1 (the mean over a frame) or more")
    found = load_images(images or ImagesConfig(family="dinov2", arch="tiny"))
    return TokensCNN(found, channels, cells=cells, keep_time=keep_time)
