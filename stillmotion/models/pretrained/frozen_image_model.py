"""Frozen image model with replaceable position embeddings; its config.

One class serves all families, which differ in where they keep their positions. Shapes: B frames of H×W pixels, N = h·w
patches, D channels, P channels of a position (D of a table, 2 of rotary coordinates).
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.position_embeddings import cell_centers, resize_grid, sincos_grid
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, IMAGENET_NORMALIZATION, Normalization
from stillmotion.models.pretrained.adapter_checkpoints import has_adapter
from stillmotion.models.pretrained.checkpoint_conversion import (
    build_transformers_model,
    detect_family,
    load_original_checkpoint,
    split_family_prefix,
)
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.hub import download_model, is_hub_name
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone, load_transformers_backbone
from stillmotion.utils.spec_options import split_options

# fmt: off
FamilyName = Literal[
    "auto", "mae", "ijepa", "ijepa-encoder", "clip", "openclip", "blip", "mocov3", "mocov3-base", "dino", "ibot",
    "dinov2", "dinov3",
]
# fmt: on
ArchName = Literal["tiny", "s8", "s14", "s16", "b8", "b14", "b16"]

# Families of each model_type of transformers.
_FAMILIES_BY_MODEL_TYPE = {
    "vit_mae": ("mae",),
    "ijepa": ("ijepa", "ijepa-encoder"),
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
    """Frozen image model.

    Attributes:
        path: Image model: a transformers folder, a name on the Hugging Face hub, or an original checkpoint (dino:FILE),
            optionally with @layer=N. Empty uses random weights.
        family: Model family: mae, ijepa, ijepa-encoder, clip, openclip, blip, mocov3, mocov3-base, dino, ibot, dinov2
            or dinov3. auto detects it from the model's folder or parameter names.
        arch: Architecture used with random weights: tiny, or ViT-S or ViT-B with 8, 14 or 16 pixel patches (s8 … b16).
        layer: Use the tokens after this transformer block, before the final norm (default: the output of the model).
        normalization: Normalization of frames: that of the model (own), or imagenet, as the authors of image-to-video
            transfer use for all models.
        seed: Seed of the random weights.
    """

    path: str = ""
    family: FamilyName = "auto"
    arch: ArchName = "b16"
    layer: int | None = None
    normalization: Literal["own", "imagenet"] = "own"
    seed: int = 0


class FrozenImageModel(TransformersBackbone):
    """A frozen image transformer, whose positions can be replaced; as a backbone, its features are mean patch tokens.

    Args:
        model: Image model of transformers.
        layer: As in `ImageModelConfig`.
        normalization: Normalization that the model expects.
        projection: Module that maps patch tokens (…, D) to (…, D) where it is used as a backbone.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        layer: int | None = None,
        normalization: Normalization = IMAGENET_NORMALIZATION,
        projection: nn.Module | None = None,
    ) -> None:
        config: Any = model.config
        if config.model_type not in _FAMILIES_BY_MODEL_TYPE:
            raise StillmotionError(
                f"Patch tokens of {config.model_type} models are not supported. Choose one of "
                f"{', '.join(CHECKPOINT_FAMILIES)}."
            )
        super().__init__(model.requires_grad_(False), pool="mean", layer=layer, projection=projection)
        self.model.eval()
        self.normalization = normalization
        self.uses_rope = hasattr(model, "rope_embeddings")

    def train(self, mode: bool = True) -> "FrozenImageModel":
        """Set the mode of the projection; the image model stays in evaluation mode."""
        super().train(mode)
        self.model.eval()  # dropout and rotary jitter would change frozen tokens
        return self

    def with_projection(self, projection: nn.Module | None) -> "FrozenImageModel":
        """Return a backbone with the same image model and another projection of its patch tokens."""
        return FrozenImageModel(self.model, layer=self.layer, normalization=self.normalization, projection=projection)

    def patch_grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of patches of a frame.

        Args:
            height: Height of the frame, in pixels.
            width: Width of the frame, in pixels.

        Raises:
            StillmotionError: If the size is not a multiple of the patch size.
        """
        if min(height, width) < self.patch_size or height % self.patch_size or width % self.patch_size:
            raise StillmotionError(
                f"Frames are {height}×{width} pixels; this {self.model_type} model needs a multiple of "
                f"{self.patch_size}, its patch size."
            )
        return height // self.patch_size, width // self.patch_size

    def position_grid(self, rows: int, columns: int, *, resized_from: tuple[int, int] | None = None) -> Tensor:
        """Return the position grid of an image, as `patch_tokens` takes it.

        Args:
            rows: Rows of the grid.
            columns: Columns of the grid.
            resized_from: Resize a table to these rows and columns first; None resizes it in one step.

        Returns:
            Grid, (rows, columns, P).
        """
        if self.uses_rope:
            return cell_centers(rows, columns, device=self._position_table().device)
        table, prefix = self._position_table(), self._num_prefix_tokens()
        side = math.isqrt(len(table) - prefix)
        grid = table[prefix:].unflatten(0, (side, side))
        return resize_grid(grid if resized_from is None else resize_grid(grid, *resized_from), rows, columns)

    def patch_tokens(self, frames: Tensor, positions: Tensor | None = None) -> Tensor:
        """Compute patch tokens, without the class token and before the projection.

        Args:
            frames: Normalized frames, (B, 3, H, W).
            positions: Position grid, (h, w, P) for all frames or (B, h, w, P); default `position_grid(h, w)`.

        Returns:
            Tokens, (B, N, D).

        Raises:
            StillmotionError: If the positions do not match the frames.
        """
        rows, columns = self.patch_grid(*frames.shape[-2:])
        if positions is None:
            positions = self.position_grid(rows, columns)
        channels = 2 if self.uses_rope else self.out_features
        if positions.shape[-3:] != (rows, columns, channels) or (positions.ndim == 4 and len(positions) != len(frames)):
            raise StillmotionError(
                f"Positions have shape {tuple(positions.shape)}; expected ({rows}, {columns}, {channels}), or as many "
                f"of these as frames, {len(frames)}."
            )
        return self._tokens_at(frames, positions)[:, -rows * columns :]

    def _image_tokens(self, frames: Tensor) -> Tensor:
        return self._tokens_at(frames, self.position_grid(*self.patch_grid(*frames.shape[-2:])))

    def _tokens_at(self, frames: Tensor, positions: Tensor) -> Tensor:
        with self._replace_positions(positions.flatten(-3, -2).to(frames.dtype)):
            return self._run_image_model(frames, interpolate=True)

    @contextlib.contextmanager
    def _replace_positions(self, grid: Tensor) -> Iterator[None]:
        """Replace the function that gives the model its positions by one that gives these, (N, P) or (B, N, P)."""
        model: Any = self.model
        function: Callable[..., Any]
        if self.uses_rope:
            owner, name, function = model.rope_embeddings, "forward", self._rope_angles(grid)
        else:
            owner, name, function = model.embeddings, "interpolate_pos_encoding", self._full_table(grid)
        setattr(owner, name, function)
        try:
            yield
        finally:
            delattr(owner, name)

    def _full_table(self, grid: Tensor) -> Callable[..., Tensor]:
        """Position table with the model's own prefix, for any arguments."""
        prefix = self._position_table()[: self._num_prefix_tokens()].to(grid.dtype)
        grid = grid if grid.ndim == 3 else grid[None]
        table = torch.cat([prefix.expand(len(grid), -1, -1), grid], dim=1)
        return lambda *args: table

    def _rope_angles(self, coordinates: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
        """Rotary embeddings at coordinates (N, 2) or (B, N, 2)."""
        frequencies: Tensor = self.model.rope_embeddings.inv_freq  # type: ignore[union-attr, assignment]
        angles = 2 * math.pi * coordinates[..., None].to(frequencies.dtype) * frequencies
        angles = angles.flatten(-2).repeat(*[1] * (coordinates.ndim - 1), 2)
        angles = angles[:, None] if coordinates.ndim == 3 else angles  # the same for every head
        return lambda frames: (angles.cos().to(frames.dtype), angles.sin().to(frames.dtype))

    def _position_table(self) -> Tensor:
        """Learned positions (prefix + n, D); for a rotary model, any tensor on its device."""
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
    """Make the path of an image model absolute, and separate family and layer from it.

    Args:
        config: Image model. A name on the hub becomes its folder in the cache, which is downloaded if needed.

    Returns:
        The same model, with a path that is valid from any working folder.

    Raises:
        StillmotionError: If the path, its family or its option is invalid.
    """
    if not config.path:
        return config
    prefix, spec = split_family_prefix(config.path)
    spec, options = split_options(spec)
    layer = config.layer
    for name, value in options.items():
        if name != "layer" or not value.isdecimal():
            raise StillmotionError(f"Unknown option {name!r} in {config.path}. Write @layer=NUMBER.")
        layer = int(value)
    family = prefix or config.family
    if (
        prefix
        and config.family != "auto"
        and CHECKPOINT_FAMILIES[prefix].model_class != CHECKPOINT_FAMILIES[config.family].model_class
    ):
        raise StillmotionError(f"{config.path} names the family {prefix}, but family is {config.family}. Omit one.")
    if Path(spec).is_file():
        family = detect_family(spec) if family == "auto" else family
    elif prefix:
        raise StillmotionError(f"{spec} does not exist. Give an original checkpoint as {prefix}:FILE.")
    path = download_model(spec) if is_hub_name(spec) else Path(spec)
    return replace(config, path=str(path.resolve()), family=family, layer=layer)  # type: ignore[arg-type]


def load_image_model(config: ImageModelConfig) -> FrozenImageModel:
    """Load a frozen image model on the CPU.

    Args:
        config: Image model.

    Returns:
        The model; with random weights if the path is empty.

    Raises:
        StillmotionError: If it cannot be loaded, or is of another family.
    """
    model = _load_own_normalization(config)
    if config.normalization == "imagenet":
        model.normalization = IMAGENET_NORMALIZATION
    return model


def _load_own_normalization(config: ImageModelConfig) -> FrozenImageModel:
    if not config.path:
        return random_image_model(config)
    config = resolve_image_model(config)
    path = Path(config.path)
    if path.is_file():
        model = load_original_checkpoint(path, config.family)
        layer, normalization = config.layer, CHECKPOINT_FAMILIES[config.family].normalization
        if has_adapter(path):  # it was trained on frames with this normalization, and of I-JEPA before the last norm
            normalization = IMAGENET_NORMALIZATION
            model_config: Any = model.config
            if layer is None and model_config.model_type == "ijepa":
                layer = model_config.num_hidden_layers
        return FrozenImageModel(model, layer=layer, normalization=normalization)
    if not (path / "config.json").is_file():
        raise StillmotionError(f"{path} has no config.json. Give a folder that save_pretrained wrote.")
    backbone, input_config = load_transformers_backbone(path)
    families = _FAMILIES_BY_MODEL_TYPE.get(backbone.model_type, ())
    if config.family != "auto" and config.family not in families:
        raise StillmotionError(
            f"{path} holds a {backbone.model_type} model, not one of the family {config.family}. "
            f"Use family auto{f' or {families[0]}' if families else ''}, or another folder."
        )
    return FrozenImageModel(backbone.model, layer=config.layer, normalization=input_config.normalization)


def random_image_model(config: ImageModelConfig) -> FrozenImageModel:
    """Build an image model with random weights, which depend on the seed only.

    Args:
        config: Image model; its path is ignored.

    Returns:
        The model.

    Raises:
        StillmotionError: If no family is given.
    """
    if config.family == "auto":
        raise StillmotionError("No image model is given. Name one by --encoder, or a family by --image-model.family.")
    family = CHECKPOINT_FAMILIES[config.family]
    is_tiny = config.arch == "tiny"
    width, num_heads, depth = (32, 2, 2) if is_tiny else (768, 12, 12) if config.arch[0] == "b" else (384, 6, 12)
    patch_size = 8 if is_tiny else int(config.arch[1:])
    options = {
        "hidden_size": width,
        "num_attention_heads": num_heads,
        "num_hidden_layers": depth,
        "patch_size": patch_size,
        "image_size": 32 if is_tiny else patch_size * (DEFAULT_IMAGE_SIZE // patch_size),
        "initializer_range": 0.02,
        "mlp_ratio": 2 if is_tiny else 4,
        "intermediate_size": width * (2 if is_tiny else 4),
        "num_register_tokens": 4,
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = build_transformers_model(family.model_class, {**options, **family.config_options})
    if config.family == "mae":
        _init_mae_positions(model)
    return FrozenImageModel(model, layer=config.layer, normalization=family.normalization)


def _init_mae_positions(model: Any) -> None:
    """Set the position table, which transformers leaves at zero in a new MAE model."""
    table = model.embeddings.position_embeddings
    if not table.any():
        side = math.isqrt(table.shape[1] - 1)
        table.data[0, 1:] = sincos_grid(side, side, table.shape[2]).flatten(0, 1)
