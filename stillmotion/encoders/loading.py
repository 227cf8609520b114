"""Which encoder to take where none is named."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.flow_encoder import FLOW_KINDS, FLOW_SPEC
from stillmotion.encoders.pretrained_encoders import PRETRAINED_KINDS
from stillmotion.encoders.run_encoders import RUN_KINDS
from stillmotion.encoders.spec import EncoderKind, EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import CLIP_OPTIONS
from stillmotion.models.pretrained.checkpoint_conversion import detect_family
from stillmotion.models.pretrained.frozen_image_model import ProjectedTokenBackbone
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone
from stillmotion.utils.device import resolve_device
from stillmotion.utils.registry import Registry

# On the Hugging Face hub, the better for motion and for a laptop first.
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
    """The text of the best encoder at hand: a model in the hub's local cache, else flow. Nothing is fetched."""
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
"""Asked in this order whether a text is one of theirs."""
_INTEGER_OPTIONS = (*CLIP_OPTIONS, "layer", "epoch")
_MAY_BE_ZERO = ("fps", "layer", "stride")
_POOL_VALUES = ("cls", "mean")
_CHECKPOINTS = (".pth", ".pt", ".bin", ".ckpt", ".tar", ".safetensors")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def load(spec: str | Path, *, device: str | None = None) -> Encoder:
    """An encoder in evaluation mode.

    spec: a run folder of any training verb; a recipe's name, which gives its network as yet untrained; a folder that
        transformers wrote, or its name on the Hugging Face hub, of a model of videos, or of images, whose frames are
        embedded one by one; an original checkpoint as <family>:<file> (`nn.families`), or the file alone where its
        names tell its family; i3d:<file.safetensors>; or flow, which needs no weights. Behind an @ stand options:
        frames, stride, fps (that stride counts) and size of clips, layer (a transformer's block, a network's stage),
        epoch (of a run that kept its weights) and, of image models, pool (cls or mean).
    device: "auto" is CUDA where there is one; None is the CPU.
    """
    named = parse_spec(spec)
    if named.kind not in RUN_KINDS:
        named = named.reject_options("epoch")
    encoder = ENCODER_KINDS[named.kind].load(named)
    clips = {field: named.options[name] for name, field in CLIP_OPTIONS.items() if name in named.options}
    return encoder.with_input(**clips).to(resolve_device(device or "cpu")).eval()


def load_comparable(
    specs: Sequence[str | Path], *, device: str | None = None, say: Callable[[str], object] = _say
) -> list[Encoder]:
    """Encoders that are compared with each other, pooled alike, as for `load`.

    A transfer run projects patches and no class token: beside one, image models pool their patches, too, unless their
    texts say otherwise. say: told of which.
    """
    loaded = [load(text, device=device) for text in specs]
    if not any(isinstance(encoder.backbone, ProjectedTokenBackbone) for encoder in loaded):
        return loaded
    for place, (text, encoder) in enumerate(zip(specs, loaded, strict=True)):
        backbone = encoder.backbone
        if (
            isinstance(backbone, TransformersBackbone)
            and backbone.token_pool == "cls"
            and encoder.origin.architecture is None
        ):
            if "pool" in encoder.origin.options:
                say(f"{text} pools its class token, and a transfer run beside it patches; pool=mean would be alike")
                continue
            say(f"{text} pools patches, as the transfer run beside it does (its class token: @pool=cls)")
            loaded[place] = load(add_options(str(text), {"pool": "mean"}), device=device)
    return loaded


def parse_spec(spec: str | Path) -> EncoderSpec:
    """What a text names; an error if that is no encoder. Nothing is loaded."""
    place, options = _split_options(str(spec))
    said, sign, rest = place.partition(":")
    if sign and said in ENCODER_KINDS and not Path(place).exists():
        if not Path(rest).exists():
            raise StillmotionError(f"there is no file {rest}; give {ENCODER_KINDS[said].description}")
        return EncoderSpec(said, rest, options, load)
    for name, kind in ENCODER_KINDS.items():
        if kind.matches(place):
            return EncoderSpec(name, place, options, load)
    wanted = "; ".join(dict.fromkeys(kind.description for kind in ENCODER_KINDS.values()))
    if Path(place).is_file() and Path(place).suffix in _CHECKPOINTS:
        return EncoderSpec(detect_family(place), place, options, load)
    if Path(place).exists():
        raise StillmotionError(f"{place} is no encoder; give {wanted}")
    raise StillmotionError(f"{spec} is neither a folder nor a recipe; give {wanted}")


def canonical_spec(spec: str | Path) -> str:
    """The text that names the same encoder from any folder."""
    return parse_spec(spec).canonical


def _split_options(spec: str) -> tuple[str, Mapping[str, Any]]:
    """The path, and the options behind its last @; a path that exists may hold an @ itself."""
    path, sign, tail = spec.rpartition("@")
    if not sign or Path(spec).exists():
        return spec, {}
    options: dict[str, Any] = {}
    for part in tail.split(","):
        key, _, value = part.partition("=")
        if key in _INTEGER_OPTIONS and value.isdigit() and (int(value) > 0 or key in _MAY_BE_ZERO):
            options[key] = int(value)
        elif key == "pool" and value in _POOL_VALUES:
            options[key] = value
        else:
            raise StillmotionError(
                f"{part!r} in {spec} is no option of an encoder; write {', '.join(f'{n}=<number>' for n in _INTEGER_OPTIONS)} "
                f"or pool={'|'.join(_POOL_VALUES)}"
            )
    return path, options
