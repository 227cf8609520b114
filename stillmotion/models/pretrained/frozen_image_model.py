"""Frozen image transformers that give their patch tokens under any positions.

One class for all families: what differs is where a model keeps its positions. Shapes: B frames of H×W pixels,
N = h·w patches, D channels, P channels of a position (D of a table, 2 of rotary coordinates).
"""

import contextlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.position_embeddings import cell_centers, resize_grid, sincos_grid
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.input_config import IMAGENET_NORMALIZATION, Normalization
from stillmotion.models.pretrained.checkpoint_conversion import (
    build_transformers_model,
    detect_family,
    load_original_checkpoint,
    split_family_prefix,
)
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.hub import download_model, is_hub_name
from stillmotion.models.pretrained.transformers_backbone import load_transformers_backbone, output_tokens

FamilyName = Literal[
    "auto",
    "mae",
    "ijepa",
    "clip",
    "openclip",
    "blip",
    "mocov3",
    "mocov3-base",
    "dino",
    "ibot",
    "dinov2",
    "dinov3",
]
ArchName = Literal["tiny", "s8", "s14", "s16", "b8", "b14", "b16"]

# Families of each model_type; a folder's own type is one of these.
_FAMILIES_BY_MODEL_TYPE = {
    "vit_mae": ("mae",),
    "ijepa": ("ijepa",),
    "clip": ("clip", "openclip"),
    "clip_vision_model": ("clip", "openclip"),
    "blip": ("blip",),
    "blip_vision_model": ("blip",),
    "vit": ("mocov3", "mocov3-base", "dino", "ibot"),
    "dinov2": ("dinov2",),
    "dinov2_with_registers": ("dinov2",),
    "dinov3_vit": ("dinov3",),
}


@dataclass(frozen=True)
class ImageModelConfig:
    """Which image transformer is transferred.

    Attributes:
        path: a folder that transformers wrote, an original checkpoint (dino:<file>, or the file alone where its names
            tell its family) or a model's name on the Hugging Face hub, each with @layer=11 behind it or without; empty
            for random weights.
        family: whose network it is: mae, ijepa, clip, openclip, blip, mocov3, mocov3-base, dino, ibot, dinov2 or
            dinov3; auto goes by the folder, or by the names in the file.
        arch: of random weights: tiny, or S and B with patches of 8, 14 or 16 pixels.
        layer: tokens after this block, before the last norm; None is the model's output.
        seed: of random weights.
    """

    path: str = ""
    family: FamilyName = "auto"
    arch: ArchName = "b16"
    layer: int | None = None
    seed: int = 0


class FrozenImageModel(nn.Module):
    """A frozen image transformer: normalised frames (B, 3, H, W) to patch tokens (B, N, D), class token dropped.

    model: of transformers. layer: as in `ImagesConfig`. normalisation: what its frames are to be normalised by.
    """

    def __init__(
        self, model: nn.Module, *, layer: int | None = None, normalization: Normalization = IMAGENET_NORMALIZATION
    ) -> None:
        super().__init__()
        config: Any = model.config
        self.model_type: str = config.model_type
        if self.model_type not in _FAMILIES_BY_MODEL_TYPE:
            raise StillmotionError(
                f"a {self.model_type} gives no tokens here; choose a model of {', '.join(CHECKPOINT_FAMILIES)}"
            )
        if layer is not None and not 0 <= layer <= config.num_hidden_layers:
            raise StillmotionError(
                f"layer is {layer}; this {self.model_type} has blocks 1 to {config.num_hidden_layers}"
            )
        self.model = model.eval().requires_grad_(False)
        self.layer, self.normalization = layer, normalization
        self.out_features, self.patch_size = int(config.hidden_size), _to_side(config.patch_size)
        self.uses_rope = hasattr(model, "rope_embeddings")
        self._can_interpolate_positions = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        self.image_size = self.patch_size * max(1, _to_side(config.image_size) // self.patch_size)

    def train(self, mode: bool = True) -> "FrozenImageModel":
        """Stays in evaluation mode: dropout and rotary jitter would change what is frozen."""
        return super().train(False)

    def patch_grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches of a frame; an error if patches do not fill it."""
        if min(height, width) < self.patch_size or height % self.patch_size or width % self.patch_size:
            raise StillmotionError(
                f"frames are {height}×{width} pixels; this {self.model_type} has patches of {self.patch_size}: "
                f"choose a multiple of {self.patch_size}"
            )
        return height // self.patch_size, width // self.patch_size

    def position_grid(self, rows: int, columns: int) -> Tensor:
        """The positional grid (rows, columns, P) of an image of so many patches, as `patch_tokens` takes it."""
        if self.uses_rope:
            return cell_centers(rows, columns, device=self._position_table().device)
        table, prefix = self._position_table(), self._num_prefix_tokens()
        side = math.isqrt(len(table) - prefix)
        return resize_grid(table[prefix:].unflatten(0, (side, side)), rows, columns)

    def patch_tokens(self, frames: Tensor, positions: Tensor | None = None) -> Tensor:
        """The patch tokens (B, N, D) of normalised frames (B, 3, H, W).

        position_grid: (h, w, P) for all frames or (B, h, w, P) for each; None is `positions(h, w)`.
        """
        rows, columns = self.patch_grid(*frames.shape[-2:])
        if positions is None:
            positions = self.position_grid(rows, columns)
        wide = 2 if self.uses_rope else self.out_features
        if positions.shape[-3:] != (rows, columns, wide) or (positions.ndim == 4 and len(positions) != len(frames)):
            raise StillmotionError(
                f"positions have shape {tuple(positions.shape)}; {len(frames)} frames of this {self.model_type} take "
                f"({rows}, {columns}, {wide}), or as many of them"
            )
        grid = positions.flatten(-3, -2).to(frames.dtype)
        options: dict[str, Any] = {"interpolate_pos_encoding": True} if self._can_interpolate_positions else {}
        if self.model_type == "vit_mae":  # would hide most patches, and shuffle the others
            options["noise"] = torch.arange(rows * columns, device=frames.device).expand(len(frames), -1)
        with self._replace_positions(grid):
            found = self.model(frames, output_hidden_states=self.layer is not None, **options)
        return output_tokens(self.model, found, self.layer)[:, -rows * columns :]

    forward = patch_tokens

    @contextlib.contextmanager
    def _replace_positions(self, grid: Tensor) -> Iterator[None]:
        """The model asks for its positions and is given these, (N, P) or (B, N, P)."""
        answer: Callable[..., Any]
        if self.uses_rope:
            place: nn.Module = self.model.rope_embeddings  # type: ignore[assignment]
            name = "forward"
            answer = self._rope_angles(grid)
        else:
            place = self.model.embeddings  # type: ignore[assignment]
            prefix = self._position_table()[: self._num_prefix_tokens()].to(grid.dtype)
            grid = grid if grid.ndim == 3 else grid[None]
            whole = torch.cat([prefix.expand(len(grid), -1, -1), grid], dim=1)
            name = "interpolate_pos_encoding"
            answer = lambda *given: whole
        setattr(place, name, answer)
        try:
            yield
        finally:
            delattr(place, name)

    def _rope_angles(self, coordinates: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """What rotary embeddings are at these coordinates (N, 2) or (B, N, 2)."""
        rates: Tensor = self.model.rope_embeddings.inv_freq  # type: ignore[union-attr, assignment]
        angles = 2 * math.pi * coordinates[..., None].to(rates.dtype) * rates
        angles = angles.flatten(-2).repeat(*[1] * (coordinates.ndim - 1), 2)
        angles = angles[:, None] if coordinates.ndim == 3 else angles  # every head turns alike
        return lambda frames: (angles.cos().to(frames.dtype), angles.sin().to(frames.dtype))

    def _position_table(self) -> Tensor:
        """The learned positions (prefix + n, D); of a rotary model, anything on its device."""
        if self.uses_rope:
            return self.model.rope_embeddings.inv_freq  # type: ignore[union-attr, return-value]
        embeddings: Any = self.model.embeddings
        table = embeddings.position_embeddings if hasattr(embeddings, "position_embeddings") else None
        if table is None:
            table = getattr(embeddings.position_embedding, "weight", embeddings.position_embedding)
        return table if table.ndim == 2 else table[0]

    def _num_prefix_tokens(self) -> int:
        return 0 if self.model_type == "ijepa" else 1


def resolve_image_model(config: ImageModelConfig) -> ImageModelConfig:
    """The same model, whose path is found from any folder; family and layer are apart from it.

    A name of the hub becomes the folder in the cache, which is fetched where it is not there.
    """
    if not config.path:
        return config
    said, text = split_family_prefix(config.path)
    place, sign, option = text.rpartition("@")
    layer = config.layer
    if sign and not Path(text).exists():
        if not re.fullmatch(r"layer=\d+", option):
            raise StillmotionError(f"{option!r} in {config.path} is no option of frozen tokens; write layer=<number>")
        text, layer = place, int(option.removeprefix("layer="))
    family = said or config.family
    if (
        said
        and config.family != "auto"
        and CHECKPOINT_FAMILIES[said].model_class != CHECKPOINT_FAMILIES[config.family].model_class
    ):
        raise StillmotionError(f"{config.path} says {said} and the family is {config.family}; leave one of them out")
    if Path(text).is_file():
        family = detect_family(text) if family == "auto" else family
    elif said:
        raise StillmotionError(f"there is no file {text}; give an original checkpoint as {said}:<file>")
    path = download_model(text) if is_hub_name(text) else Path(text)
    return replace(config, path=str(path.resolve()), family=family, layer=layer)  # type: ignore[arg-type]


def load_image_model(config: ImageModelConfig) -> FrozenImageModel:
    """The image transformer that a configuration names, frozen, on the CPU."""
    if not config.path:
        return random_image_model(config)
    config = resolve_image_model(config)
    path = Path(config.path)
    if path.is_file():
        seen = CHECKPOINT_FAMILIES[config.family].normalization
        return FrozenImageModel(load_original_checkpoint(path, config.family), layer=config.layer, normalization=seen)
    if not (path / "config.json").is_file():
        raise StillmotionError(f"{path} is no model's folder: it has no config.json; give what save_pretrained wrote")
    backbone, intake = load_transformers_backbone(path)
    families = _FAMILIES_BY_MODEL_TYPE.get(backbone.model_type, ())
    if config.family != "auto" and config.family not in families:
        raise StillmotionError(
            f"{path} holds a {backbone.model_type}, not a model of {config.family}; leave out the family or choose "
            f"{' or '.join(families) or 'another folder'}"
        )
    return FrozenImageModel(backbone.model, layer=config.layer, normalization=intake.normalization)


def random_image_model(config: ImageModelConfig) -> FrozenImageModel:
    """A model of a family with random weights: the same ones for the same seed."""
    if config.family == "auto":
        raise StillmotionError(
            "no image model is given; name a folder by --encoder, or a family by --image-model.family"
        )
    family = CHECKPOINT_FAMILIES[config.family]
    tiny = config.arch == "tiny"
    width, heads, blocks = (32, 2, 2) if tiny else (768, 12, 12) if config.arch[0] == "b" else (384, 6, 12)
    patch = 8 if tiny else int(config.arch[1:])
    options = {
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "patch_size": patch,
        "image_size": 32 if tiny else patch * (224 // patch),
        "initializer_range": 0.02,
        "mlp_ratio": 2 if tiny else 4,
        "intermediate_size": width * (2 if tiny else 4),
        "num_register_tokens": 4,
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = build_transformers_model(family.model_class, {**options, **family.config_options})
    if config.family == "mae":
        _init_mae_positions(model)
    return FrozenImageModel(model, layer=config.layer, normalization=family.normalization)


def _init_mae_positions(model: Any) -> None:
    """Set the table of positions that a model made from a configuration leaves at zero."""
    table = model.embeddings.position_embeddings
    if not table.any():
        side = math.isqrt(table.shape[1] - 1)
        table.data[0, 1:] = sincos_grid(side, side, table.shape[2]).flatten(0, 1)


class ProjectedTokenBackbone(Backbone):
    """An image transformer's tokens, projected, as a backbone: clips (B, 3, T, H, W) to features (B, T, D).

    projection: tokens (…, D) to (…, D); None leaves them. Features are means over a frame's tokens.
    """

    is_framewise = has_patch_grid = True

    def __init__(self, image_model: FrozenImageModel, projection: nn.Module | None = None) -> None:
        super().__init__()
        self.images, self.projection = image_model, projection
        self.out_features, self.min_size, self.size_divisor = (
            image_model.out_features,
            image_model.patch_size,
            image_model.patch_size,
        )
        self.stage_prefixes = (("images", "projection"),)

    def _trunk(self, clips: Tensor) -> Tensor:
        rows, columns = self.images.patch_grid(*clips.shape[-2:])
        tokens = self.images.patch_tokens(clips.transpose(1, 2).flatten(0, 1))
        return tokens.unflatten(0, (len(clips), -1)).unflatten(2, (rows, columns))

    def _last_stage(self, h: Tensor) -> Tensor:
        return (h if self.projection is None else self.projection(h)).movedim(-1, 1)


def _to_side(size: Any) -> int:
    return int(size[0] if isinstance(size, list | tuple) else size)
