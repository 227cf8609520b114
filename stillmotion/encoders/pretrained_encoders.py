"""Pretrained encoders: transformers models from a folder or the hub, original checkpoints, video networks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.patch_tokens import encoder_from_tokens, load_patch_tokens
from stillmotion.encoders.run_weights import find_run_of_weights
from stillmotion.encoders.spec import EncoderKind, EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, InputConfig
from stillmotion.models.pretrained.adapter_checkpoints import has_adapter
from stillmotion.models.pretrained.checkpoint_conversion import load_original_checkpoint
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.hub import download_model, is_hub_name
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone, load_transformers_backbone
from stillmotion.models.pretrained.video_checkpoints import (
    VIDEO_CHECKPOINTS,
    build_video_network,
    detect_video_network,
)
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.utils.files import read_json

_ORIGINAL_DESCRIPTION = f"an original checkpoint as FAMILY:FILE ({', '.join(CHECKPOINT_FAMILIES)})"
_VIDEO_DESCRIPTION = f"weights of a video network as NETWORK:FILE ({', '.join(VIDEO_CHECKPOINTS)})"


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
    if has_adapter(spec.path):  # patches are projected, so that there is no class token
        if spec.options.get("pool") == "cls":
            raise StillmotionError(f"{spec.path} projects patches and has no class token. Remove pool=cls.")
        options = {"layer": spec.options["layer"]} if "layer" in spec.options else {}
        return encoder_from_tokens(load_patch_tokens(add_options(f"{family}:{spec.path}", options)), _origin(spec))
    model = load_original_checkpoint(spec.path, family)
    backbone = TransformersBackbone(model, pool=spec.options.get("pool"), layer=spec.options.get("layer"))
    image_size = min(backbone.image_size, DEFAULT_IMAGE_SIZE)
    input_config = InputConfig(8, 8, image_size, CHECKPOINT_FAMILIES[family].normalization)
    return Encoder(backbone, input_config=input_config, origin=_origin(spec))


def _load_video_network(spec: EncoderSpec) -> Encoder:
    run_dir = find_run_of_weights(spec.reject_options("pool").path)
    if run_dir is not None:  # its padding, strides and clips may differ from those of public weights
        raise StillmotionError(f"{spec.path} is part of a run. Give its folder as the encoder: {run_dir}.")
    backbone = build_video_network(spec.kind)
    load_weights(backbone, spec.path)
    input_config, layer = VIDEO_CHECKPOINTS[spec.kind].input_config, spec.options.get("layer")
    return Encoder(backbone, input_config=input_config, layer=layer, origin=_origin(spec))


def _origin(spec: EncoderSpec) -> EncoderOrigin:
    fresh = partial(build_video_network, spec.kind) if spec.kind in VIDEO_CHECKPOINTS else None
    return EncoderOrigin(spec.canonical, spec.kind, spec.options, build_fresh=fresh)


def _is_transformers(path: str) -> bool:
    try:
        config = read_json(Path(path) / "config.json")
        return isinstance(config, dict) and ("model_type" in config or "auto_map" in config)
    except (OSError, StillmotionError):
        return False


def _matches_video_network(network: str) -> Callable[[str], bool]:
    return lambda path: detect_video_network(path) == network


PRETRAINED_KINDS = {
    "transformers": EncoderKind("a model folder of transformers", _is_transformers, _load_transformers),
    **{
        family: EncoderKind(_ORIGINAL_DESCRIPTION, lambda path: False, load)
        for family, load in ((family, partial(_load_original, family=family)) for family in CHECKPOINT_FAMILIES)
    },
    **{
        network: EncoderKind(_VIDEO_DESCRIPTION, _matches_video_network(network), _load_video_network)
        for network in VIDEO_CHECKPOINTS
    },
    "hub": EncoderKind("a model name on the Hugging Face hub, such as facebook/dinov2-small", is_hub_name, _load_hub),
}
