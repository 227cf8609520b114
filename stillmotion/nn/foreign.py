"""Models of transformers as backbones.

A model of videos is given the clip; a model of images is given its frames one by one. Either way there is one feature
per time step, so that whatever asks a backbone of this library can ask these.

Shapes: B clips, T frames, T' time steps, N = H'·W' patches, D channels.
"""

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.files import read_json
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.intake import IMAGENET, Intake, Normalisation
from stillmotion.nn.originals import import_transformers

Pool = Literal["class", "patches"]


I3D_INTAKE = Intake(64, 1, 224, Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))  # values in [-1, 1]


@dataclass(frozen=True)
class _Family:
    """A model of videos: its class, the fields of its configuration that hold frames and size, and its usual stride.

    longest: more frames than this are not asked for by default. any_length: positions are right for other lengths.
    space_first: tokens are ordered by place and then by time.
    """

    loader: str
    frames: str
    size: str
    stride: int
    longest: int = 64
    any_length: bool = False
    space_first: bool = False


_VIDEO = {
    "videomae": _Family("VideoMAEModel", "num_frames", "image_size", stride=4),
    "vjepa2": _Family("VJEPA2Model", "frames_per_clip", "crop_size", stride=4, longest=16, any_length=True),
    "timesformer": _Family("TimesformerModel", "num_frames", "image_size", stride=32, space_first=True),
}
# Of models of images and text, the half that sees.
_IMAGE_HALF = {"clip": "CLIPVisionModel", "siglip": "SiglipVisionModel", "blip": "BlipVisionModel"}
_ANY_SIZE = ("dinov2", "dinov2_with_registers", "dinov3_vit")  # they fit their positions to the frame unasked
_USUAL_SIZE = 224
_UNUSED = ("pooler", "mask_token", "predictor", "decoder")  # no feature depends on these


class TransformersBackbone(Backbone):
    """A model of transformers: clips (B, 3, T, H, W) in its own normalisation to features (B, T', D).

    pool: "class" takes the class token of each frame, where the model has one; "patches" the mean of the patches.
    layer: features after this block, before the last norm; None is the model's output.
    """

    stages = (("model",),)

    def __init__(self, model: nn.Module, *, pool: Pool | None = None, layer: int | None = None) -> None:
        super().__init__()
        self.model, self.layer = model, layer
        config: Any = model.config
        self.kind: str = config.model_type
        self._family = _VIDEO.get(self.kind)
        self.of_images = self._family is None
        self.tubelet = int(getattr(config, "tubelet_size", 1)) if self._family else 1
        self.frames_step = self.least_frames = self.tubelet
        widths = getattr(config, "hidden_sizes", None) or [config.hidden_size]
        self.width = int(widths[-1])
        self.patch = int(getattr(config, "patch_size", 1))
        self.native = _side(getattr(config, self._family.size if self._family else "image_size", _USUAL_SIZE))
        self._asked = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        convolutional = not hasattr(config, "patch_size") or bool(getattr(config, "hidden_sizes", None))
        self.any_size = self._family is None and (self._asked or convolutional or self.kind in _ANY_SIZE)
        self.least_size, self.size_step = (1, 1) if convolutional else (self.patch, self.patch)
        self.patch_grid = self.any_size and not convolutional and not hasattr(config, "depths")  # of a pyramid
        if layer is not None and not 0 <= layer <= config.num_hidden_layers:
            raise StillmotionError(f"layer is {layer}; this {self.kind} has blocks 1 to {config.num_hidden_layers}")
        self.pool: Pool = pool or ("patches" if self._family else "class")

    def intake(self, folder: Path) -> Intake:
        """What the folder's processor files say, and the model's configuration where there is none."""
        said = _processor(folder)
        mean, std = said.get("image_mean", IMAGENET.mean), said.get("image_std", IMAGENET.std)
        normalisation = Normalisation(tuple(mean), tuple(std))
        if self._family is not None:
            frames = min(int(getattr(self.model.config, self._family.frames)), self._family.longest)
            return Intake(frames, self._family.stride, self.native, normalisation)
        crop = said.get("crop_size") if said.get("do_center_crop", True) else None
        wanted = crop or said.get("size")
        size = _side(wanted) if wanted else min(self.native, _USUAL_SIZE)
        return Intake(8, 8, size if self.any_size else self.native, normalisation)

    def late(self, h: Tensor) -> Tensor:
        return self._seen(h)[0]

    def seen(self, clip: Tensor) -> tuple[Tensor, Tensor]:
        return self._seen(self.early(clip))

    def _seen(self, h: Tensor) -> tuple[Tensor, Tensor]:
        first, patches = self._tokens(h)
        return self.pooled(patches) if first is None or self.pool != "class" else first, patches

    def _early(self, clip: Tensor) -> Tensor:
        return clip  # the whole model is one stage

    def _last(self, h: Tensor) -> Tensor:
        return self._tokens(h)[1]

    def _tokens(self, clip: Tensor) -> tuple[Tensor | None, Tensor]:
        """The class token of each frame (B, T', D), if there is one, and the patches (B, D, T', H', W')."""
        frames = clip.transpose(1, 2)
        b, t, _, height, width = frames.shape
        rows, columns = height // self.patch, width // self.patch
        options: dict[str, Any] = {"skip_predictor": True} if self.kind == "vjepa2" else {}
        if self._family is None:
            frames = frames.flatten(0, 1)
            if self._asked and (height, width) != (self.native, self.native):
                options["interpolate_pos_encoding"] = True
            if self.kind == "vit_mae":  # would hide most patches, and shuffle the others
                order = torch.arange(rows * columns, device=clip.device, dtype=clip.dtype)
                options["noise"] = order.expand(len(frames), -1)
        found = self.model(frames, output_hidden_states=self.layer is not None, **options)
        tokens = found.last_hidden_state if self.layer is None else found.hidden_states[self.layer]
        if tokens.ndim == 4:  # a convolutional network's map
            return None, tokens.unflatten(0, (b, t)).transpose(1, 2)
        while tokens.shape[1] < rows * columns:  # a pyramid has merged patches two by two
            rows, columns = rows // 2, columns // 2
        count = rows * columns
        if self._family is None:
            tokens = tokens.unflatten(0, (b, t))
            first = tokens[:, :, 0] if tokens.shape[2] > count else None
            patches = tokens[:, :, -count:]
        else:
            first, steps = None, t // self.tubelet
            tokens = tokens[:, -count * steps :]
            patches = (
                tokens.unflatten(1, (count, steps)).transpose(1, 2)
                if self._family.space_first
                else tokens.unflatten(1, (steps, count))
            )
        return first, patches.movedim(-1, 1).unflatten(3, (rows, columns))

    def _check(self, clip: Tensor) -> None:
        super()._check(clip)
        frames, height, width = clip.shape[2:]
        if self._family is not None and not self._family.any_length:
            wanted = int(getattr(self.model.config, self._family.frames))
            if frames != wanted:
                raise StillmotionError(
                    f"clips have {frames} frames; this {self.kind} takes {wanted} and no other number"
                )
        if not self.any_size and (height, width) != (self.native, self.native):
            raise StillmotionError(
                f"frames are {height}×{width} pixels; this {self.kind} knows positions for "
                f"{self.native}×{self.native} only: leave the size at that"
            )


def load_transformers(
    folder: str | Path, *, pool: Pool | None = None, layer: int | None = None
) -> tuple[TransformersBackbone, Intake]:
    """The model in a folder that `save_pretrained` wrote, in single precision, and what it wants to be shown.

    pool, layer: as in `TransformersBackbone`. Nothing is fetched and no code in the folder is executed.
    """
    folder = Path(folder)
    transformers = import_transformers()
    kind = _kind(folder)
    loader = _VIDEO[kind].loader if kind in _VIDEO else _IMAGE_HALF.get(kind, "AutoModel")
    try:
        with _quiet(transformers):
            model, info = getattr(transformers, loader).from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        return _backbone(folder, kind, model, info, pool, layer)
    except (StillmotionError, Interrupted, MemoryError):
        raise
    except Exception as error:  # in a damaged folder, transformers stumbles over anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StillmotionError(f"{folder} cannot be loaded as a {kind} model: {reason}; fetch it again") from None


def _backbone(
    folder: Path, kind: str, model: Any, info: Any, pool: Pool | None, layer: int | None
) -> tuple[TransformersBackbone, Intake]:
    """The loaded model as a backbone, where all of it was loaded and it is one of images or videos."""
    missing = [name for name in info["missing_keys"] if not any(part in name for part in _UNUSED)]
    if missing or info["mismatched_keys"]:
        some = ", ".join(map(str, [*missing, *info["mismatched_keys"]][:3]))
        raise StillmotionError(f"{folder} lacks weights of its {kind} ({some}); they would be random: fetch it again")
    if model.main_input_name not in ("pixel_values", "pixel_values_videos") or (
        kind not in _VIDEO and hasattr(model.config, "num_frames")
    ):
        raise StillmotionError(
            f"{folder} holds a {kind}; an encoder is a model of images, or of videos: {', '.join(_VIDEO)}"
        )
    if kind == "vit_mae":
        model.config.mask_ratio = 0.0
    backbone = TransformersBackbone(model, pool=pool, layer=layer).eval()
    return backbone, backbone.intake(folder)


def _kind(folder: Path) -> str:
    """The type that a model's folder says it is of; an error where that would be loaded by code that is not here."""
    file = folder / "config.json"
    said = read_json(file, remedy="fetch it again")
    if not isinstance(said, dict):
        raise StillmotionError(f"{file} holds no named fields; fetch it again")
    if "auto_map" in said or any("/" in name for name in _implementations(said)):
        raise StillmotionError(
            f"{file} names code of its own; code in a folder, or fetched for it, is never run here: give a model that "
            "transformers has itself"
        )
    kind = said.get("model_type")
    if not isinstance(kind, str):
        raise StillmotionError(f"{file} has the model_type {kind!r}, which is no name; fetch it again")
    return kind


def _implementations(said: Any, named: bool = False) -> Iterator[str]:
    """What a configuration, or one within it, names for its attention: what has a slash in it is fetched, and run."""
    if isinstance(said, dict):
        for name, value in said.items():
            yield from _implementations(value, named or "_implementation" in name)
    elif named and isinstance(said, str):
        yield said


def _processor(folder: Path) -> dict[str, Any]:
    for name in ("video_preprocessor_config.json", "preprocessor_config.json"):
        if (folder / name).is_file():
            found = read_json(folder / name, remedy="fetch it again")
            return found if isinstance(found, dict) else {}
    return {}


def _side(size: Any) -> int:
    """Pixels a side, of what a configuration may write as a number, a pair or by name."""
    if isinstance(size, dict):
        return int(size.get("shortest_edge") or size["height"])
    return int(size[0] if isinstance(size, list | tuple) else size)


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
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
