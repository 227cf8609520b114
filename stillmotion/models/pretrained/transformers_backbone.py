"""Models of transformers as backbones.

A model of videos is given the clip; a model of images is given its frames one by one. Either way there is one feature
per time step, so that whatever asks a backbone of this library can ask these.

Shapes: B clips, T frames, T' time steps, N = H'·W' patches, D channels."""

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.input_config import CLIP_NORMALIZATION, IMAGENET_NORMALIZATION, InputConfig, Normalization
from stillmotion.models.pretrained.checkpoint_conversion import import_transformers
from stillmotion.utils.files import read_json
from stillmotion.utils.formatting import format_names

TokenPool = Literal["cls", "mean"]


@dataclass(frozen=True)
class _VideoModelSpec:
    """A model of videos: its class, the fields of its configuration that hold frames and size, and its usual stride.

    max_default_frames: more frames than this are not asked for by default. any_length: positions are right for other lengths.
    space_before_time: tokens are ordered by place and then by time.
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
# Of models of images and text, the half that sees.
_VISION_MODEL_CLASS = {
    "clip": "CLIPVisionModel",
    "siglip": "SiglipVisionModel",
    "blip": "BlipVisionModel",
    "blip_vision_model": "BlipVisionModel",
}
_KEY_MAPPING = {"blip": {r"^vision_model\.": ""}}  # transformers does so for the others itself
_NEEDS_FINAL_NORM = ("clip", "clip_vision_model")  # their patches come without the last norm
# What frames are normalised by where no processor's file says it; ImageNet's mean and deviation else.
_DEFAULT_NORMALIZATION = {
    **dict.fromkeys(("clip", "clip_vision_model", "blip", "blip_vision_model"), CLIP_NORMALIZATION),
    **dict.fromkeys(("siglip", "siglip_vision_model"), Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))),
}
_ANY_SIZE = ("dinov2", "dinov2_with_registers", "dinov3_vit")  # they fit their positions to the frame unasked
_DEFAULT_IMAGE_SIZE = 224
_UNUSED_MODULES = ("pooler", "mask_token", "predictor", "decoder")  # no feature depends on these
# Parts of names that a folder may hold beyond the model: heads, the half that reads, and what is not learned.
_IGNORED_KEYS = {
    *("pooler", "mask_token", "predictor", "decoder", "encoder_to_decoder", "head", "fc_norm", "position_ids"),
    *("classifier", "cls_classifier", "distillation_classifier", "itm_head", "lm_head", "logit_scale", "logit_bias"),
    *("text_model", "text_encoder", "text_decoder", "text_projection", "visual_projection", "text_proj", "vision_proj"),
}


class TransformersBackbone(Backbone):
    """A model of transformers: clips (B, 3, T, H, W) in its own normalisation to features (B, T', D).

    token_pool: "cls" takes the class token of each frame, where the model has one; "mean" the mean of the patches.
    layer: features after this block, before the last norm; None is the model's output.
    """

    stage_prefixes = (("model",),)

    def __init__(self, model: nn.Module, *, pool: TokenPool | None = None, layer: int | None = None) -> None:
        super().__init__()
        self.model, self.layer = model, layer
        config: Any = model.config
        self.model_type: str = config.model_type
        self._video_spec = _VIDEO_MODELS.get(self.model_type)
        self.is_framewise = self._video_spec is None
        self.tubelet_size = int(getattr(config, "tubelet_size", 1)) if self._video_spec else 1
        self.frames_divisor = self.min_frames = self.tubelet_size
        widths = getattr(config, "hidden_sizes", None) or [config.hidden_size]
        self.out_features = int(widths[-1])
        self.patch_size = int(getattr(config, "patch_size", 1))
        self.image_size = _to_side(
            getattr(config, self._video_spec.size_field if self._video_spec else "image_size", _DEFAULT_IMAGE_SIZE)
        )
        self._can_interpolate_positions = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        convolutional = not hasattr(config, "patch_size") or bool(getattr(config, "hidden_sizes", None))
        self.supports_any_size = self._video_spec is None and (
            self._can_interpolate_positions or convolutional or self.model_type in _ANY_SIZE
        )
        self.min_size, self.size_divisor = (1, 1) if convolutional else (self.patch_size, self.patch_size)
        self.has_patch_grid = (
            self.supports_any_size and not convolutional and not hasattr(config, "depths")
        )  # of a pyramid
        if layer is not None and not 0 <= layer <= config.num_hidden_layers:
            raise StillmotionError(
                f"layer is {layer}; this {self.model_type} has blocks 1 to {config.num_hidden_layers}"
            )
        self.token_pool: TokenPool = pool or ("mean" if self._video_spec else "cls")

    def read_input_config(self, folder: Path) -> InputConfig:
        """What the folder's processor files say, and the model's configuration where there is none."""
        said = _read_processor_config(folder)
        usual = _DEFAULT_NORMALIZATION.get(self.model_type, IMAGENET_NORMALIZATION)
        mean, std = said.get("image_mean", usual.mean), said.get("image_std", usual.std)
        normalisation = Normalization(tuple(mean), tuple(std))
        if self._video_spec is not None:
            frames = min(
                int(getattr(self.model.config, self._video_spec.frames_field)), self._video_spec.max_default_frames
            )
            return InputConfig(frames, self._video_spec.stride, self.image_size, normalisation)
        crop = said.get("crop_size") if said.get("do_center_crop", True) else None
        wanted = crop or said.get("size")
        size = _to_side(wanted) if wanted else min(self.image_size, _DEFAULT_IMAGE_SIZE)
        return InputConfig(8, 8, size if self.supports_any_size else self.image_size, normalisation)

    def forward_last_stage(self, h: Tensor) -> Tensor:
        return self._features_and_map(h)[0]

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        return self._features_and_map(self.forward_trunk(clips))

    def _features_and_map(self, h: Tensor) -> tuple[Tensor, Tensor]:
        first, patches = self._tokens(h)
        if first is None or self.token_pool != "cls":
            first = self.pool(patches)
        return first, patches

    def _trunk(self, clips: Tensor) -> Tensor:
        return clips  # the whole model is one stage

    def _last_stage(self, h: Tensor) -> Tensor:
        return self._tokens(h)[1]

    def _tokens(self, clips: Tensor) -> tuple[Tensor | None, Tensor]:
        """The class token of each frame (B, T', D), if there is one, and the patches (B, D, T', H', W')."""
        frames = clips.transpose(1, 2)
        b, t, _, height, width = frames.shape
        rows, columns = height // self.patch_size, width // self.patch_size
        options: dict[str, Any] = {"skip_predictor": True} if self.model_type == "vjepa2" else {}
        if self._video_spec is None:
            frames = frames.flatten(0, 1)
            if self._can_interpolate_positions and (height, width) != (self.image_size, self.image_size):
                options["interpolate_pos_encoding"] = True
            if self.model_type == "vit_mae":  # would hide most patches, and shuffle the others
                order = torch.arange(rows * columns, device=clips.device, dtype=clips.dtype)
                options["noise"] = order.expand(len(frames), -1)
        found = self.model(frames, output_hidden_states=self.layer is not None, **options)
        tokens = output_tokens(self.model, found, self.layer)
        if tokens.ndim == 4:  # a convolutional network's map
            return None, tokens.unflatten(0, (b, t)).transpose(1, 2)
        while tokens.shape[1] < rows * columns:  # a pyramid has merged patches two by two
            rows, columns = rows // 2, columns // 2
        count = rows * columns
        if self._video_spec is None:
            tokens = tokens.unflatten(0, (b, t))
            first = tokens[:, :, 0] if tokens.shape[2] > count else None
            patches = tokens[:, :, -count:]
        else:
            first, steps = None, t // self.tubelet_size
            tokens = tokens[:, -count * steps :]
            patches = (
                tokens.unflatten(1, (count, steps)).transpose(1, 2)
                if self._video_spec.space_before_time
                else tokens.unflatten(1, (steps, count))
            )
        return first, patches.movedim(-1, 1).unflatten(3, (rows, columns))

    def _check_input(self, clips: Tensor) -> None:
        super()._check_input(clips)
        frames, height, width = clips.shape[2:]
        if self._video_spec is not None and not self._video_spec.supports_any_length:
            wanted = int(getattr(self.model.config, self._video_spec.frames_field))
            if frames != wanted:
                raise StillmotionError(
                    f"clips have {frames} frames; this {self.model_type} takes {wanted} and no other number"
                )
        if not self.supports_any_size and (height, width) != (self.image_size, self.image_size):
            raise StillmotionError(
                f"frames are {height}×{width} pixels; this {self.model_type} knows positions for "
                f"{self.image_size}×{self.image_size} only: leave the size at that"
            )


def output_tokens(model: nn.Module, output: Any, layer: int | None) -> Tensor:
    """The tokens of what a model answered: after this block, or those that it ends with, under its last norm.

    CLIP's own output has that norm on the class token alone.
    """
    if layer is not None:
        return output.hidden_states[layer]
    config: Any = model.config
    tokens = output.last_hidden_state
    if config.model_type in _NEEDS_FINAL_NORM:
        return model.post_layernorm(tokens)  # type: ignore[operator]
    return tokens


def load_transformers_backbone(
    folder: str | Path, *, pool: TokenPool | None = None, layer: int | None = None
) -> tuple[TransformersBackbone, InputConfig]:
    """The model in a folder that `save_pretrained` wrote, in single precision, and what it wants to be shown.

    pool, layer: as in `TransformersBackbone`. Nothing is fetched and no code in the folder is executed.
    """
    folder = Path(folder)
    transformers = import_transformers()
    kind = _read_model_type(folder)
    loader = _VIDEO_MODELS[kind].model_class if kind in _VIDEO_MODELS else _VISION_MODEL_CLASS.get(kind, "AutoModel")
    try:
        with _silence_transformers(transformers):
            model, info = getattr(transformers, loader).from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                dtype=torch.float32,
                output_loading_info=True,
                **({"key_mapping": _KEY_MAPPING[kind]} if kind in _KEY_MAPPING else {}),
            )
        return _build_backbone(folder, kind, model, info, pool, layer)
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # in a damaged folder, transformers stumbles over anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(f"{folder} cannot be loaded as a {kind} model: {reason}; fetch it again") from None


def _build_backbone(
    folder: Path, model_type: str, model: Any, info: Any, pool: TokenPool | None, layer: int | None
) -> tuple[TransformersBackbone, InputConfig]:
    """The loaded model as a backbone, where all of it was loaded and it is one of images or videos."""
    missing = [name for name in info["missing_keys"] if not any(part in name for part in _UNUSED_MODULES)]
    if missing or info["mismatched_keys"]:
        names = format_names([str(name) for name in [*missing, *info["mismatched_keys"]]])
        raise StillmotionError(
            f"{folder} lacks weights of its {model_type} ({names}); they would be random: fetch it again"
        )
    unknown = sorted(name for name in info["unexpected_keys"] if _IGNORED_KEYS.isdisjoint(name.split(".")))
    if unknown:
        raise StillmotionError(
            f"{folder} has {len(unknown)} names that a {model_type} does not know: {format_names(unknown)}; mend its config.json, or "
            "fetch it again"
        )
    if model.main_input_name not in ("pixel_values", "pixel_values_videos") or (
        model_type not in _VIDEO_MODELS and hasattr(model.config, "num_frames")
    ):
        raise StillmotionError(
            f"{folder} holds a {model_type}; an encoder is a model of images, or of videos: {', '.join(_VIDEO_MODELS)}"
        )
    if model_type == "vit_mae":
        model.config.mask_ratio = 0.0
    backbone = TransformersBackbone(model, pool=pool, layer=layer).eval()
    return backbone, backbone.read_input_config(folder)


def _read_model_type(folder: Path) -> str:
    """The type that a model's folder says it is of; an error where that would be loaded by code that is not here."""
    file = folder / "config.json"
    said = read_json(file, hint="fetch it again")
    if not isinstance(said, dict):
        raise StillmotionError(f"{file} holds no named fields; fetch it again")
    if "auto_map" in said or any("/" in name for name in _attention_implementations(said)):
        raise StillmotionError(
            f"{file} names code of its own; code in a folder, or fetched for it, is never run here: give a model that "
            "transformers has itself"
        )
    kind = said.get("model_type")
    if not isinstance(kind, str):
        raise StillmotionError(f"{file} has the model_type {kind!r}, which is no name; fetch it again")
    return kind


def _attention_implementations(said: Any, named: bool = False) -> Iterator[str]:
    """What a configuration, or one within it, names for its attention: what has a slash in it is fetched, and run."""
    if isinstance(said, dict):
        for name, value in said.items():
            yield from _attention_implementations(value, named or "_implementation" in name)
    elif named and isinstance(said, str):
        yield said


def _read_processor_config(folder: Path) -> dict[str, Any]:
    """What the file of a folder's processor says; one that also reads text keeps it under image_processor."""
    for name in ("video_preprocessor_config.json", "preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            found = read_json(folder / name, hint="fetch it again")
            found = found.get("image_processor", found) if isinstance(found, dict) else {}
            return found if isinstance(found, dict) else {}
    return {}


def _to_side(size: Any) -> int:
    """Pixels a side, of what a configuration may write as a number, a pair or by name."""
    if isinstance(size, dict):
        return int(size.get("shortest_edge") or size["height"])
    return int(size[0] if isinstance(size, list | tuple) else size)


@contextlib.contextmanager
def _silence_transformers(transformers: Any) -> Iterator[None]:
    """No progress bars and no advice: what matters is raised."""
    log = transformers.utils.logging
    before, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(before)
        if bars:
            log.enable_progress_bar()
