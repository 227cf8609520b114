"""Pretrained encoders: transformers models from a folder or the hub, original checkpoints, I3D."""

from functools import partial
from pathlib import Path

import safetensors

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.spec import EncoderKind, EncoderSpec
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import Backbone, create_backbone
from stillmotion.models.backbones.i3d import I3D_INPUT_CONFIG
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, InputConfig
from stillmotion.models.pretrained.checkpoint_conversion import load_original_checkpoint
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.hub import download_model, is_hub_name
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone, load_transformers_backbone
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.utils.files import read_json

_I3D_KEY = "Mixed_5c.b3b.conv3d.weight"
_ORIGINAL_DESCRIPTION = f"an original checkpoint as FAMILY:FILE ({', '.join(CHECKPOINT_FAMILIES)})"


def _load_transformers(spec: EncoderSpec) -> Encoder:
    return _load_folder(spec, spec.path)


def _load_hub(spec: EncoderSpec) -> Encoder:
    return _load_folder(spec, download_model(spec.path))


def _load_folder(spec: EncoderSpec, folder: str | Path) -> Encoder:
    model, input_config = load_transformers_backbone(
        folder, pool=spec.options.get("pool"), layer=spec.options.get("layer")
    )
    return Encoder(model, input_config=input_config, origin=_origin(spec))


def _load_original(spec: EncoderSpec, *, family: str) -> Encoder:
    model = load_original_checkpoint(spec.path, family)
    backbone = TransformersBackbone(model, pool=spec.options.get("pool"), layer=spec.options.get("layer"))
    image_size = min(backbone.image_size, DEFAULT_IMAGE_SIZE)
    input_config = InputConfig(8, 8, image_size, CHECKPOINT_FAMILIES[family].normalization)
    return Encoder(backbone, input_config=input_config, origin=_origin(spec))


def build_i3d() -> Backbone:
    """Build I3D with the strides and the padding of its pretrained weights."""
    return create_backbone("i3d", per_frame_features=False, temporal_padding="zeros")


def _load_i3d(spec: EncoderSpec) -> Encoder:
    backbone = build_i3d()
    load_weights(backbone, spec.reject_options("pool").path)
    layer = spec.options.get("layer")
    return Encoder(backbone, input_config=I3D_INPUT_CONFIG, layer=layer, origin=_origin(spec))


def _origin(spec: EncoderSpec) -> EncoderOrigin:
    fresh = build_i3d if spec.kind == "i3d" else None
    return EncoderOrigin(spec.canonical, spec.kind, spec.options, build_fresh=fresh)


def _is_transformers(path: str) -> bool:
    try:
        config = read_json(Path(path) / "config.json")
        return isinstance(config, dict) and ("model_type" in config or "auto_map" in config)
    except (OSError, StillmotionError):
        return False


def _is_i3d(path: str) -> bool:
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return False
    try:
        with safetensors.safe_open(path, "pt") as opened:
            return any(key.endswith(_I3D_KEY) for key in opened.keys())  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError):
        return False


PRETRAINED_KINDS = {
    "transformers": EncoderKind("a model folder of transformers", _is_transformers, _load_transformers),
    **{
        family: EncoderKind(_ORIGINAL_DESCRIPTION, lambda path: False, load)
        for family, load in ((family, partial(_load_original, family=family)) for family in CHECKPOINT_FAMILIES)
    },
    "i3d": EncoderKind("I3D weights as i3d:FILE.safetensors", _is_i3d, _load_i3d),
    "hub": EncoderKind("a model name on the Hugging Face hub, such as facebook/dinov2-small", is_hub_name, _load_hub),
}
