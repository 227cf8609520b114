"""Loading of encoders by their spec strings."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillmotion.encoders.color_flow_encoder import FLOW_KINDS, FLOW_SPEC
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.pretrained_encoders import PRETRAINED_KINDS
from stillmotion.encoders.spec import EncoderKind, EncoderSpec, add_options
from stillmotion.encoders.trained_encoders import RUN_KINDS
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import CLIP_OPTIONS
from stillmotion.models.pretrained.checkpoint_conversion import detect_family
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone
from stillmotion.models.pretrained.weight_loading import CHECKPOINT_SUFFIXES
from stillmotion.utils.device import resolve_device
from stillmotion.utils.registry import Registry
from stillmotion.utils.spec_options import split_options

logger = logging.getLogger(__name__)

# Models on the Hugging Face hub, the better ones for motion and for a laptop first.
DEFAULT_ENCODERS = (
    "facebook/dinov2-small",
    "facebook/dinov2-with-registers-small",
    "facebook/dinov3-vits16-pretrain-lvd1689m",
    "facebook/dinov2-base",
    "facebook/dinov2-with-registers-base",
    "facebook/dinov3-vitb16-pretrain-lvd1689m",
    "facebook/dino-vits16",
    "facebook/dino-vitb16",
)
_CACHED_FILES = ("config.json", "model.safetensors")


def default_encoder_spec() -> str:
    """Return the spec of the best available encoder: a model in the hub's local cache, else `flow`.

    Nothing is downloaded.
    """
    return next((name for name in DEFAULT_ENCODERS if _is_cached(name)), FLOW_SPEC)


def _is_cached(name: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:  # it comes with transformers
        return False
    return all(isinstance(try_to_load_from_cache(name, file), str) for file in _CACHED_FILES)


ENCODER_KINDS: Registry[EncoderKind] = Registry(
    "kind of encoder", "encoders", RUN_KINDS | PRETRAINED_KINDS | FLOW_KINDS
)
"""Kinds of encoders, in the order in which they are tried for a spec."""
_INTEGER_OPTIONS = (*CLIP_OPTIONS, "layer", "epoch")
_MAY_BE_ZERO = ("fps", "layer", "stride")
_POOL_VALUES = ("cls", "mean")


def load(spec: str | Path, *, device: str | None = None) -> Encoder:
    """Load an encoder, in evaluation mode.

    Args:
        spec: Encoder spec: a run folder of any training verb; a recipe name (its untrained network); a model folder of
            transformers or its name on the Hugging Face hub (a video model, or an image model, whose frames are
            embedded one by one); an original checkpoint as `FAMILY:FILE`, or public weights of a video network as
            `NETWORK:FILE`, or the file alone if its keys identify it; or `flow`, which needs no weights. Options follow
            an @: frames, stride, fps and size of the clips, layer (a transformer block or backbone stage), epoch (saved
            weights of a run) and, for image models, pool (cls or mean), as in `runs/mine@frames=16,size=112`.
        device: Device to load it on; "auto" is CUDA if available, None is the CPU.

    Returns:
        The encoder.

    Raises:
        StillmotionError: If the spec names no encoder, or it cannot be loaded.
    """
    parsed = parse_spec(spec)
    if parsed.kind not in RUN_KINDS:
        parsed = parsed.reject_options("epoch")
    encoder = ENCODER_KINDS[parsed.kind].load(parsed)
    clips = {field: parsed.options[name] for name, field in CLIP_OPTIONS.items() if name in parsed.options}
    return encoder.with_input(**clips).to(resolve_device(device or "cpu")).eval()


def load_comparable(specs: Sequence[str | Path], *, device: str | None = None) -> list[Encoder]:
    """Load encoders that are compared with each other, with the same pooling.

    A transfer run projects patches and has no class token. Beside one, image models average their patches too, unless
    their specs set the pooling.

    Args:
        specs: Encoder specs, as in `load`.
        device: Device to load them on, as in `load`.

    Returns:
        The encoders, in the order of the specs.
    """
    encoders = [load(spec, device=device) for spec in specs]
    if not any(isinstance(encoder.backbone, FrozenImageModel) for encoder in encoders):
        return encoders
    for i, (spec, encoder) in enumerate(zip(specs, encoders, strict=True)):
        backbone = encoder.backbone
        if (
            isinstance(backbone, TransformersBackbone)
            and backbone.token_pool == "cls"
            and encoder.origin.architecture is None
        ):
            if "pool" in encoder.origin.options:
                logger.warning(
                    "%s uses its class token, but is compared with a transfer run that averages patches; add "
                    "@pool=mean.",
                    spec,
                )
                continue
            logger.info("Using the mean of patches for %s, to match the transfer run (override with @pool=cls).", spec)
            encoders[i] = load(add_options(str(spec), {"pool": "mean"}), device=device)
    return encoders


def parse_spec(spec: str | Path) -> EncoderSpec:
    """Parse an encoder spec without loading anything.

    Args:
        spec: Encoder spec, as in `load`.

    Returns:
        The parsed spec.

    Raises:
        StillmotionError: If it names no encoder.
    """
    path, options = _parse_options(str(spec))
    prefix, colon, file = path.partition(":")
    if colon and prefix in ENCODER_KINDS and not Path(path).exists():
        if not Path(file).exists():
            raise StillmotionError(f"{file} does not exist; give {ENCODER_KINDS[prefix].description}.")
        return EncoderSpec(prefix, file, options, load)
    for name, kind in ENCODER_KINDS.items():
        if kind.matches(path):
            return EncoderSpec(name, path, options, load)
    if Path(path).is_file() and Path(path).suffix in CHECKPOINT_SUFFIXES:
        return EncoderSpec(detect_family(path), path, options, load)
    kinds = "; ".join(dict.fromkeys(kind.description for kind in ENCODER_KINDS.values()))
    if Path(path).exists():
        raise StillmotionError(f"{path} is not an encoder. Give one of: {kinds}.")
    raise StillmotionError(f"Unknown encoder {str(spec)!r}. Give one of: {kinds}.")


def canonical_spec(spec: str | Path) -> str:
    """Return the spec of the same encoder that is valid from any working folder."""
    return parse_spec(spec).canonical


def _parse_options(spec: str) -> tuple[str, Mapping[str, Any]]:
    """Split a spec into its path and its options, and check these."""
    path, texts = split_options(spec)
    options: dict[str, Any] = {}
    for name, value in texts.items():
        is_number = value.isdecimal() and value.isascii()
        if name in _INTEGER_OPTIONS and is_number and (int(value) > 0 or name in _MAY_BE_ZERO):
            options[name] = int(value)
        elif name == "pool" and value in _POOL_VALUES:
            options[name] = value
        else:
            names = ", ".join(f"{name}=NUMBER" for name in _INTEGER_OPTIONS)
            option = f"{name}={value}" if value else name
            raise StillmotionError(
                f"Unknown option {option!r} in {spec!r}. Options are {names} and pool={'|'.join(_POOL_VALUES)}."
            )
    return path, options
