"""Frozen image transformers that give their patch tokens under any positions.

One class for all families: what differs is where a model keeps its positions. Shapes: B frames of H×W pixels,
N = h·w patches, D channels, P channels of a position (D of a table, 2 of rotary coordinates).
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.positions import cell_centres, resize_grid, sincos_grid
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.foreign import load_transformers
from stillmotion.nn.intake import IMAGENET, Normalisation
from stillmotion.nn.originals import import_transformers, load_original

Family = Literal["auto", "mae", "ijepa", "clip", "blip", "mocov3", "dino", "ibot", "dinov2", "dinov3"]
Arch = Literal["tiny", "s8", "s14", "s16", "b8", "b14", "b16"]

_CLIP = Normalisation((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
# By family: the names of the class and of its configuration in transformers.
_CLASSES = {
    "mae": ("ViTMAEModel", "ViTMAEConfig"),
    "ijepa": ("IJepaModel", "IJepaConfig"),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig"),
    "blip": ("BlipVisionModel", "BlipVisionConfig"),
    "mocov3": ("ViTModel", "ViTConfig"),
    "dino": ("ViTModel", "ViTConfig"),
    "ibot": ("ViTModel", "ViTConfig"),
    "dinov2": ("Dinov2Model", "Dinov2Config"),
    "dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig"),
}
FAMILIES = tuple(_CLASSES)
# Families of each model_type; a folder's own type is one of these.
_KINDS = {
    "vit_mae": ("mae",),
    "ijepa": ("ijepa",),
    "clip": ("clip",),
    "clip_vision_model": ("clip",),
    "blip": ("blip",),
    "blip_vision_model": ("blip",),
    "vit": ("mocov3", "dino", "ibot"),
    "dinov2": ("dinov2",),
    "dinov2_with_registers": ("dinov2",),
    "dinov3_vit": ("dinov3",),
}
_POOLING = ("ViTModel", "IJepaModel")  # would make a pooling layer that nothing here asks


@dataclass(frozen=True)
class ImagesConfig:
    """Which image transformer is transferred.

    Attributes:
        path: a folder that transformers wrote, or an original checkpoint of MoCo v3, iBOT or DINO; empty for random
            weights.
        family: mae, ijepa, clip, blip, mocov3, dino, ibot, dinov2 or dinov3; auto goes by the folder.
        arch: of random weights: tiny, or S and B with patches of 8, 14 or 16 pixels.
        layer: tokens after this block, before the last norm; None is the model's output.
        seed: of random weights.
    """

    path: str = ""
    family: Family = "auto"
    arch: Arch = "b16"
    layer: int | None = None
    seed: int = 0


class ImageTokens(nn.Module):
    """A frozen image transformer: normalised frames (B, 3, H, W) to patch tokens (B, N, D), class token dropped.

    model: of transformers. layer: as in `ImagesConfig`. normalisation: what its frames are to be normalised by.
    """

    def __init__(self, model: nn.Module, *, layer: int | None = None, normalisation: Normalisation = IMAGENET) -> None:
        super().__init__()
        config: Any = model.config
        self.kind: str = config.model_type
        if self.kind not in _KINDS:
            raise StillmotionError(f"a {self.kind} gives no tokens here; choose a model of {', '.join(FAMILIES)}")
        if layer is not None and not 0 <= layer <= config.num_hidden_layers:
            raise StillmotionError(f"layer is {layer}; this {self.kind} has blocks 1 to {config.num_hidden_layers}")
        self.model = model.eval().requires_grad_(False)
        self.layer, self.normalisation = layer, normalisation
        self.width, self.patch = int(config.hidden_size), _side(config.patch_size)
        self.rotary = hasattr(model, "rope_embeddings")
        self._asked = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        self.size = self.patch * max(1, _side(config.image_size) // self.patch)

    def train(self, mode: bool = True) -> "ImageTokens":
        """Stays in evaluation mode: dropout and rotary jitter would change what is frozen."""
        return super().train(False)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches of a frame; an error if patches do not fill it."""
        if min(height, width) < self.patch or height % self.patch or width % self.patch:
            raise StillmotionError(
                f"frames are {height}×{width} pixels; this {self.kind} has patches of {self.patch}: "
                f"choose a multiple of {self.patch}"
            )
        return height // self.patch, width // self.patch

    def positions(self, rows: int, columns: int) -> Tensor:
        """The positional grid (rows, columns, P) of an image of so many patches, as `tokens` takes it."""
        if self.rotary:
            return cell_centres(rows, columns, device=self._table().device)
        table, prefix = self._table(), self._prefix()
        side = math.isqrt(len(table) - prefix)
        return resize_grid(table[prefix:].unflatten(0, (side, side)), rows, columns)

    def tokens(self, frames: Tensor, positions: Tensor | None = None) -> Tensor:
        """The patch tokens (B, N, D) of normalised frames (B, 3, H, W).

        positions: (h, w, P) for all frames or (B, h, w, P) for each; None is `positions(h, w)`.
        """
        rows, columns = self.grid(*frames.shape[-2:])
        if positions is None:
            positions = self.positions(rows, columns)
        wide = 2 if self.rotary else self.width
        if positions.shape[-3:] != (rows, columns, wide) or (positions.ndim == 4 and len(positions) != len(frames)):
            raise StillmotionError(
                f"positions have shape {tuple(positions.shape)}; {len(frames)} frames of this {self.kind} take "
                f"({rows}, {columns}, {wide}), or as many of them"
            )
        grid = positions.flatten(-3, -2).to(frames.dtype)
        options: dict[str, Any] = {"interpolate_pos_encoding": True} if self._asked else {}
        if self.kind == "vit_mae":  # would hide most patches, and shuffle the others
            options["noise"] = torch.arange(rows * columns, device=frames.device).expand(len(frames), -1)
        with self._placed(grid):
            found = self.model(frames, output_hidden_states=self.layer is not None, **options)
        tokens = found.last_hidden_state if self.layer is None else found.hidden_states[self.layer]
        return tokens[:, -rows * columns :]

    forward = tokens

    @contextlib.contextmanager
    def _placed(self, grid: Tensor) -> Iterator[None]:
        """The model asks for its positions and is given these, (N, P) or (B, N, P)."""
        answer: Callable[..., Any]
        if self.rotary:
            place: nn.Module = self.model.rope_embeddings  # type: ignore[assignment]
            name = "forward"
            answer = self._turns(grid)
        else:
            place = self.model.embeddings  # type: ignore[assignment]
            prefix = self._table()[: self._prefix()].to(grid.dtype)
            grid = grid if grid.ndim == 3 else grid[None]
            whole = torch.cat([prefix.expand(len(grid), -1, -1), grid], dim=1)
            name = "interpolate_pos_encoding"
            answer = lambda *given: whole  # noqa: E731
        setattr(place, name, answer)
        try:
            yield
        finally:
            delattr(place, name)

    def _turns(self, coordinates: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """What rotary embeddings are at these coordinates (N, 2) or (B, N, 2)."""
        rates: Tensor = self.model.rope_embeddings.inv_freq  # type: ignore[union-attr, assignment]
        angles = 2 * math.pi * coordinates[..., None].to(rates.dtype) * rates
        angles = angles.flatten(-2).repeat(*[1] * (coordinates.ndim - 1), 2)
        angles = angles[:, None] if coordinates.ndim == 3 else angles  # every head turns alike
        return lambda frames: (angles.cos().to(frames.dtype), angles.sin().to(frames.dtype))

    def _table(self) -> Tensor:
        """The learned positions (prefix + n, D); of a rotary model, anything on its device."""
        if self.rotary:
            return self.model.rope_embeddings.inv_freq  # type: ignore[union-attr, return-value]
        embeddings: Any = self.model.embeddings
        table = embeddings.position_embeddings if hasattr(embeddings, "position_embeddings") else None
        if table is None:
            table = getattr(embeddings.position_embedding, "weight", embeddings.position_embedding)
        return table if table.ndim == 2 else table[0]

    def _prefix(self) -> int:
        return 0 if self.kind == "ijepa" else 1


def load_images(config: ImagesConfig) -> ImageTokens:
    """The image transformer that a configuration names, frozen, on the CPU."""
    if not config.path:
        return random_images(config)
    path = Path(config.path)
    if path.is_file():
        if config.family not in ("mocov3", "ibot", "dino"):
            raise StillmotionError(
                f"{path} is a file and the family is {config.family}; original checkpoints are read of mocov3, ibot "
                "and dino: name one by --images.family, or give a folder that transformers wrote"
            )
        return ImageTokens(load_original(path, config.family), layer=config.layer)
    if not (path / "config.json").is_file():
        raise StillmotionError(f"{path} is no model's folder: it has no config.json; give what save_pretrained wrote")
    backbone, intake = load_transformers(path)
    families = _KINDS.get(backbone.kind, ())
    if config.family != "auto" and config.family not in families:
        raise StillmotionError(
            f"{path} holds a {backbone.kind}, not a model of {config.family}; leave out the family or choose "
            f"{' or '.join(families) or 'another folder'}"
        )
    return ImageTokens(backbone.model, layer=config.layer, normalisation=intake.normalisation)


def random_images(config: ImagesConfig) -> ImageTokens:
    """A model of a family with random weights: the same ones for the same seed."""
    if config.family == "auto":
        raise StillmotionError("no image model is given; name a folder by --encoder, or a family by --images.family")
    transformers = import_transformers()
    model_name, config_name = _CLASSES[config.family]
    tiny = config.arch == "tiny"
    width, heads, blocks = (32, 2, 2) if tiny else (768, 12, 12) if config.arch[0] == "b" else (384, 6, 12)
    patch = 8 if tiny else int(config.arch[1:])
    options: dict[str, Any] = {
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "patch_size": patch,
        "image_size": 32 if tiny else patch * (224 // patch),
        "initializer_range": 0.02,
    }
    if config.family == "dinov2":
        options["mlp_ratio"] = 2 if tiny else 4
    else:
        options["intermediate_size"] = width * (2 if tiny else 4)
    if config.family == "dinov3":
        options["num_register_tokens"] = 4
    without = {"add_pooling_layer": False} if model_name in _POOLING else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = getattr(transformers, model_name)(getattr(transformers, config_name)(**options), **without)
    if config.family == "mae":
        _prepare_mae(model)
    return ImageTokens(
        model, layer=config.layer, normalisation=_CLIP if config.family in ("clip", "blip") else IMAGENET
    )


def _prepare_mae(model: Any) -> None:
    """Show all patches, and set the table of positions that a model made from a configuration leaves at zero."""
    model.config.mask_ratio = 0.0
    table = model.embeddings.position_embeddings
    if not table.any():
        side = math.isqrt(table.shape[1] - 1)
        table.data[0, 1:] = sincos_grid(side, side, table.shape[2]).flatten(0, 1)


class TokensBackbone(Backbone):
    """An image transformer's tokens, projected, as a backbone: clips (B, 3, T, H, W) to features (B, T, D).

    projection: tokens (…, D) to (…, D); None leaves them. Features are means over a frame's tokens.
    """

    of_images = patch_grid = True

    def __init__(self, images: ImageTokens, projection: nn.Module | None = None) -> None:
        super().__init__()
        self.images, self.projection = images, projection
        self.width, self.least_size, self.size_step = images.width, images.patch, images.patch
        self.stages = (("images", "projection"),)

    def _early(self, clip: Tensor) -> Tensor:
        rows, columns = self.images.grid(*clip.shape[-2:])
        tokens = self.images.tokens(clip.transpose(1, 2).flatten(0, 1))
        return tokens.unflatten(0, (len(clip), -1)).unflatten(2, (rows, columns))

    def _last(self, h: Tensor) -> Tensor:
        return (h if self.projection is None else self.projection(h)).movedim(-1, 1)


def _side(size: Any) -> int:
    return int(size[0] if isinstance(size, list | tuple) else size)
