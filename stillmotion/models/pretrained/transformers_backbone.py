"""A transformers model of videos or images as a backbone.

A video model is given the clip, an image model its frames one by one. Both give one feature per time step.

Shapes: B clips, T frames, T' time steps, N = H'·W' patches, D channels.
"""

import contextlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.input_config import (
    CLIP_NORMALIZATION,
    DEFAULT_IMAGE_SIZE,
    IMAGENET_NORMALIZATION,
    InputConfig,
    Normalization,
)
from stillmotion.models.pretrained.checkpoint_conversion import import_transformers
from stillmotion.utils.files import read_json
from stillmotion.utils.formatting import format_names

TokenPool = Literal["cls", "mean"]


@dataclass(frozen=True)
class _VideoModelSpec:
    """A kind of video model.

    model_class: its class in transformers. frames_field, size_field: fields of its config with the number of frames and
    the frame size. stride: default frame stride. max_default_frames: most frames used by default. supports_any_length:
    positions are right for other clip lengths. space_before_time: tokens are ordered by position first, then by time.
    """

    model_class: str
    frames_field: str
    size_field: str
    stride: int
    max_default_frames: int = 64
    supports_any_length: bool = False
    space_before_time: bool = False


_VIDEO_MODELS = {
    "videomae": _VideoModelSpec("VideoMAEModel", "num_frames", "image_size", stride=4),
    "vjepa2": _VideoModelSpec(
        "VJEPA2Model", "frames_per_clip", "crop_size", stride=4, max_default_frames=16, supports_any_length=True
    ),
    "timesformer": _VideoModelSpec("TimesformerModel", "num_frames", "image_size", stride=32, space_before_time=True),
}
# The image part of image-text models.
_VISION_MODEL_CLASS = {
    "clip": "CLIPVisionModel",
    "siglip": "SiglipVisionModel",
    "blip": "BlipVisionModel",
    "blip_vision_model": "BlipVisionModel",
}
_KEY_MAPPING = {"blip": {r"^vision_model\.": ""}}  # transformers maps the keys of the others itself
_NEEDS_FINAL_NORM = ("clip", "clip_vision_model")  # their patch tokens come without the final norm
# Normalization if no processor file defines one; ImageNet's for all others.
_DEFAULT_NORMALIZATION = {
    **dict.fromkeys(("clip", "clip_vision_model", "blip", "blip_vision_model"), CLIP_NORMALIZATION),
    **dict.fromkeys(("siglip", "siglip_vision_model"), Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))),
}
_ANY_SIZE = ("dinov2", "dinov2_with_registers", "dinov3_vit")  # they always adapt their positions to the frame size
_UNUSED_MODULES = ("pooler", "mask_token", "predictor", "decoder")  # no feature depends on these
# Key parts that a folder may hold beyond the model: heads, text models and buffers that are not learned.
_IGNORED_KEYS = {
    *("pooler", "mask_token", "predictor", "decoder", "encoder_to_decoder", "head", "fc_norm", "position_ids"),
    *("classifier", "cls_classifier", "distillation_classifier", "itm_head", "lm_head", "logit_scale", "logit_bias"),
    *("text_model", "text_encoder", "text_decoder", "text_projection", "visual_projection", "text_proj", "vision_proj"),
}
# Fields of a config that set the size of the network, and their largest values: far more than any model has.
_LAYER_FIELD, _MAX_LAYERS = re.compile(r"layers$|^depths?$|_depth$|blocks$"), 1000
_SIZE_FIELD, _MAX_FIELD = re.compile(r"_sizes?$|_dim$|^num_|channels$|width$|ratio$|_frames$|_per_clip$"), 1_000_000


class TransformersBackbone(Backbone):
    """A transformers model: clips (B, 3, T, H, W) in its own normalization to features (B, T', D).

    Args:
        model: Model of transformers.
        pool: "cls" uses the class token of each frame, if there is one; "mean" averages the patches. Default: "mean"
            for video models, "cls" for image models.
        layer: Use the features after this block, before the final norm; None uses the output of the model.
        projection: Module that maps patch tokens (…, D) to (…, D).
    """

    stage_prefixes = (("model", "projection"),)

    def __init__(
        self,
        model: nn.Module,
        *,
        pool: TokenPool | None = None,
        layer: int | None = None,
        projection: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model, self.layer, self.projection = model, layer, projection
        config: Any = model.config
        self.model_type: str = config.model_type
        self._video_spec = _VIDEO_MODELS.get(self.model_type)
        self.is_framewise = self._video_spec is None
        self.tubelet_size = int(getattr(config, "tubelet_size", 1)) if self._video_spec else 1
        self.frames_divisor = self.min_frames = self.tubelet_size
        hidden_sizes = getattr(config, "hidden_sizes", None)
        self.out_features = int((hidden_sizes or [config.hidden_size])[-1])
        self.patch_size = _to_side(getattr(config, "patch_size", 1))
        size_field = self._video_spec.size_field if self._video_spec else "image_size"
        self.image_size = _to_side(getattr(config, size_field, DEFAULT_IMAGE_SIZE))
        self._can_interpolate_positions = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        is_convolutional = not hasattr(config, "patch_size") or bool(hidden_sizes)
        self.supports_any_size = self._video_spec is None and (
            self._can_interpolate_positions or is_convolutional or self.model_type in _ANY_SIZE
        )
        self.min_size = self.size_divisor = 1 if is_convolutional else self.patch_size
        is_pyramid = hasattr(config, "depths")
        self.has_patch_grid = self.supports_any_size and not is_convolutional and not is_pyramid
        if layer is not None and not 0 <= layer <= config.num_hidden_layers:
            raise StillmotionError(
                f"layer is {layer}; this {self.model_type} model has blocks 1 to {config.num_hidden_layers}."
            )
        self.token_pool: TokenPool = pool or ("mean" if self._video_spec else "cls")

    def read_input_config(self, folder: Path) -> InputConfig:
        """Read the input of the model from the processor files of its folder, else from its config."""
        processor = _read_processor_config(folder)
        default = _DEFAULT_NORMALIZATION.get(self.model_type, IMAGENET_NORMALIZATION)
        mean, std = processor.get("image_mean", default.mean), processor.get("image_std", default.std)
        normalization = Normalization(tuple(mean), tuple(std))
        if self._video_spec is not None:
            num_frames = int(getattr(self.model.config, self._video_spec.frames_field))
            num_frames = min(num_frames, self._video_spec.max_default_frames)
            return InputConfig(num_frames, self._video_spec.stride, self.image_size, normalization)
        crop_size = processor.get("crop_size") if processor.get("do_center_crop", True) else None
        size = crop_size or processor.get("size")
        image_size = _to_side(size) if size else min(self.image_size, DEFAULT_IMAGE_SIZE)
        return InputConfig(8, 8, image_size if self.supports_any_size else self.image_size, normalization)

    def forward_last_stage(self, h: Tensor) -> Tensor:
        return self._features_and_map(h)[0]

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        return self._features_and_map(self.forward_trunk(clips))

    def _features_and_map(self, h: Tensor) -> tuple[Tensor, Tensor]:
        features, patches = self._tokens(h)
        if features is None or self.token_pool != "cls":
            features = self.pool(patches)
        return features, patches

    def _trunk(self, clips: Tensor) -> Tensor:
        return clips  # the whole model is one stage

    def _last_stage(self, h: Tensor) -> Tensor:
        return self._tokens(h)[1]

    def _tokens(self, clips: Tensor) -> tuple[Tensor | None, Tensor]:
        """Class token of each frame (B, T', D), if there is one, and patches (B, D, T', H', W')."""
        frames = clips.transpose(1, 2)
        b, t, _, height, width = frames.shape
        if self._video_spec is None:
            tokens = self._image_tokens(frames.flatten(0, 1))
        else:
            tokens = self._run(frames, **({"skip_predictor": True} if self.model_type == "vjepa2" else {}))
        if tokens.ndim == 4:  # the map of a convolutional network
            return None, tokens.unflatten(0, (b, t)).transpose(1, 2)
        rows, columns = height // self.patch_size, width // self.patch_size
        while tokens.shape[1] < rows * columns:  # a pyramid merges 2×2 patches
            rows, columns = rows // 2, columns // 2
        count = rows * columns
        if self._video_spec is None:
            tokens = tokens.unflatten(0, (b, t))
            class_token = tokens[:, :, 0] if tokens.shape[2] > count else None
            patches = tokens[:, :, -count:]
        else:
            class_token, steps = None, t // self.tubelet_size
            tokens = tokens[:, -count * steps :]
            patches = (
                tokens.unflatten(1, (count, steps)).transpose(1, 2)
                if self._video_spec.space_before_time
                else tokens.unflatten(1, (steps, count))
            )
        patches = patches.unflatten(2, (rows, columns))
        return class_token, (patches if self.projection is None else self.projection(patches)).movedim(-1, 1)

    def _image_tokens(self, frames: Tensor) -> Tensor:
        """All tokens (B, prefix + N, D) of an image model, or its map (B, D, H', W')."""
        is_native = tuple(frames.shape[-2:]) == (self.image_size, self.image_size)
        return self._run_image_model(frames, interpolate=not is_native)

    def _run_image_model(self, frames: Tensor, *, interpolate: bool) -> Tensor:
        options: dict[str, Any] = {}
        if interpolate and self._can_interpolate_positions:
            options["interpolate_pos_encoding"] = True
        if self.model_type == "vit_mae":  # it would mask most patches and shuffle the others
            count = (frames.shape[-2] // self.patch_size) * (frames.shape[-1] // self.patch_size)
            options["noise"] = torch.arange(count, device=frames.device).expand(len(frames), -1)
        return self._run(frames, **options)

    def _run(self, pixels: Tensor, **options: Any) -> Tensor:
        """Tokens after the chosen block, or at the end under the final norm, which CLIP has on its class token only."""
        output = self.model(pixels, output_hidden_states=self.layer is not None, **options)
        if self.layer is not None:
            return output.hidden_states[self.layer]
        tokens = output.last_hidden_state
        return self.model.post_layernorm(tokens) if self.model_type in _NEEDS_FINAL_NORM else tokens  # type: ignore[operator]

    def _check_input(self, clips: Tensor) -> None:
        super()._check_input(clips)
        num_frames, height, width = clips.shape[2:]
        if self._video_spec is not None and not self._video_spec.supports_any_length:
            expected = int(getattr(self.model.config, self._video_spec.frames_field))
            if num_frames != expected:
                raise StillmotionError(
                    f"Clips have {num_frames} frames; this {self.model_type} model needs exactly {expected}."
                )
        if not self.supports_any_size and (height, width) != (self.image_size, self.image_size):
            raise StillmotionError(
                f"Frames are {height}×{width}; this {self.model_type} model only supports "
                f"{self.image_size}×{self.image_size}."
            )


def load_transformers_backbone(
    folder: str | Path, *, pool: TokenPool | None = None, layer: int | None = None
) -> tuple[TransformersBackbone, InputConfig]:
    """Load the model of a folder that `save_pretrained` wrote, in single precision.

    Nothing is downloaded, and no code in the folder is executed.

    Args:
        folder: Folder with config.json and weights.
        pool: As in `TransformersBackbone`.
        layer: As in `TransformersBackbone`.

    Returns:
        The backbone in evaluation mode, and the input it expects.

    Raises:
        StillmotionError: If the folder is damaged, holds another kind of model, or asks for custom code.
    """
    folder = Path(folder)
    transformers = import_transformers()
    model_type = _read_model_type(folder)
    video_spec = _VIDEO_MODELS.get(model_type)
    class_name = video_spec.model_class if video_spec else _VISION_MODEL_CLASS.get(model_type, "AutoModel")
    try:
        with _silence_transformers(transformers):
            model, info = getattr(transformers, class_name).from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                dtype=torch.float32,
                output_loading_info=True,
                **({"key_mapping": _KEY_MAPPING[model_type]} if model_type in _KEY_MAPPING else {}),
            )
        _check_loaded(folder, model_type, model, info)
        if model_type == "vit_mae":
            model.config.mask_ratio = 0.0
        backbone = TransformersBackbone(model, pool=pool, layer=layer).eval()
        return backbone, backbone.read_input_config(folder)
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # transformers can fail in any way on a damaged folder
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(
            f"{folder} cannot be loaded as a {model_type} model: {reason}. Download it again."
        ) from None


def _check_loaded(folder: Path, model_type: str, model: Any, info: Any) -> None:
    """Raise unless all weights were loaded and the model takes images or videos."""
    missing = [name for name in info["missing_keys"] if not any(part in name for part in _UNUSED_MODULES)]
    if missing or info["mismatched_keys"]:
        names = format_names([str(name) for name in [*missing, *info["mismatched_keys"]]])
        raise StillmotionError(f"{folder}: weights are missing ({names}). Download the {model_type} model again.")
    unknown = sorted(name for name in info["unexpected_keys"] if _IGNORED_KEYS.isdisjoint(name.split(".")))
    if unknown:
        raise StillmotionError(
            f"{folder}: {len(unknown)} unexpected weights for a {model_type} model ({format_names(unknown)}). "
            "Fix config.json or download the model again."
        )
    if model.main_input_name not in ("pixel_values", "pixel_values_videos") or (
        model_type not in _VIDEO_MODELS and hasattr(model.config, "num_frames")
    ):
        raise StillmotionError(
            f"{folder} holds a {model_type} model. Encoders are image models, or video models of the types "
            f"{', '.join(_VIDEO_MODELS)}."
        )


def _read_model_type(folder: Path) -> str:
    """Read the model type of a folder; raise if it would need code that is not part of transformers."""
    file = folder / "config.json"
    for other in folder.iterdir():
        if not (other.is_file() or other.is_dir()):  # reading a pipe or a device may never end
            raise StillmotionError(f"{other} is not a regular file. Download the model again.")
    config = read_json(file, hint="Download the model again.")
    if not isinstance(config, dict):
        raise StillmotionError(f"{file} is not a JSON object. Download the model again.")
    _check_sizes(config, file)
    if "auto_map" in config or any("/" in name for name in _attention_implementations(config)):
        raise StillmotionError(
            f"{file} asks for custom code (auto_map), which stillmotion never runs. "
            "Use a model built into transformers."
        )
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise StillmotionError(f"{file} has the invalid model_type {model_type!r}. Download the model again.")
    return model_type


def _check_sizes(config: Any, file: Path, name: str = "") -> None:
    """Raise if a config describes a network that is larger than any, before it is built."""
    if isinstance(config, dict | list):
        for key, value in config.items() if isinstance(config, dict) else enumerate(config):
            _check_sizes(value, file, str(key) if isinstance(config, dict) else name)
    elif isinstance(config, int | float) and (limit := _size_limit(name)) is not None and abs(config) > limit:
        raise StillmotionError(f"{file} has {name} {config}; at most {limit} is allowed. Download the model again.")


def _size_limit(name: str) -> int | None:
    if _LAYER_FIELD.search(name):
        return _MAX_LAYERS
    return _MAX_FIELD if _SIZE_FIELD.search(name) else None


def _attention_implementations(config: Any, is_named: bool = False) -> Iterator[str]:
    """Yield the attention implementations named by a config or its parts; those with a slash would be downloaded."""
    if isinstance(config, dict):
        for name, value in config.items():
            yield from _attention_implementations(value, is_named or "_implementation" in name)
    elif is_named and isinstance(config, str):
        yield config


def _read_processor_config(folder: Path) -> dict[str, Any]:
    """Read the processor file of a folder; processors of text and images keep it under image_processor."""
    for name in ("video_preprocessor_config.json", "preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            config = read_json(folder / name, hint="Download the model again.")
            config = config.get("image_processor", config) if isinstance(config, dict) else {}
            return config if isinstance(config, dict) else {}
    return {}


def _to_side(size: Any) -> int:
    """Pixels per side of a size that a config may write as a number, a pair or a dictionary."""
    if isinstance(size, dict):
        return int(size.get("shortest_edge") or size["height"])
    return int(size[0] if isinstance(size, list | tuple) else size)


@contextlib.contextmanager
def _silence_transformers(transformers: Any) -> Iterator[None]:
    """Disable progress bars and log messages of transformers; problems are raised."""
    log = transformers.utils.logging
    verbosity, had_progress_bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if had_progress_bar:
            log.enable_progress_bar()
