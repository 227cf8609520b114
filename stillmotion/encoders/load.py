"""Any encoder by one text: a run folder, a recipe, a transformers folder, an original checkpoint, I3D, flow.

Behind an @ stand options: `models/dinov2@frames=4,size=112,pool=patches,layer=11`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.flow import FLOW
from stillmotion.encoders.kinds import EncoderKind, Named
from stillmotion.encoders.models import MODELS
from stillmotion.encoders.runs import RUNS
from stillmotion.errors import StillmotionError
from stillmotion.nn.intake import CLIPS
from stillmotion.registry import Registry
from stillmotion.train.process import choose_device

ENCODERS: Registry[EncoderKind] = Registry("kind of encoder", "encoders", RUNS | MODELS | FLOW)
"""Asked in this order whether a text is one of theirs."""

_NUMBERS = (*CLIPS, "layer")
_MAY_BE_NONE = ("fps", "layer", "stride")
_POOLS = ("class", "patches")


def load(text: str | Path, *, device: str | None = None) -> Encoder:
    """An encoder in evaluation mode.

    text: a run folder of any training verb; a recipe's name, which gives its network as yet untrained; a folder that
        transformers wrote, of a model of videos, or of images, whose frames are embedded one by one; an original
        checkpoint as dino:<file>, ibot:<file> or mocov3:<file>; i3d:<file.safetensors>; or flow, which needs no
        weights. Behind an @ stand options: frames, stride, fps (that stride counts) and size of clips, layer (a
        transformer's block, a network's stage) and, of transformers, pool (class or patches).
    device: "auto" is CUDA where there is one; None is the CPU.
    """
    named = read_text(text)
    encoder = ENCODERS[named.kind].load(named)
    clips = {name: named.options[name] for name in CLIPS if name in named.options}
    return encoder.shown(**clips).to(choose_device(device or "cpu")).eval()


def read_text(text: str | Path) -> Named:
    """What a text names; an error if that is no encoder. Nothing is loaded."""
    place, options = _parted(str(text))
    said, sign, rest = place.partition(":")
    if sign and said in ENCODERS and not Path(place).exists():
        if not Path(rest).exists():
            raise StillmotionError(f"there is no file {rest}; give {ENCODERS[said].what}")
        return Named(said, rest, options, load)
    for name, kind in ENCODERS.items():
        if kind.knows(place):
            return Named(name, place, options, load)
    wanted = "; ".join(dict.fromkeys(kind.what for kind in ENCODERS.values()))
    if Path(place).exists():
        raise StillmotionError(f"{place} is no encoder; give {wanted}")
    raise StillmotionError(f"{text} is neither a folder nor a recipe; give {wanted}")


def full_text(text: str | Path) -> str:
    """The text that names the same encoder from any folder."""
    return read_text(text).text


def _parted(text: str) -> tuple[str, Mapping[str, Any]]:
    """The path, and the options behind its last @; a path that exists may hold an @ itself."""
    path, sign, tail = text.rpartition("@")
    if not sign or Path(text).exists():
        return text, {}
    options: dict[str, Any] = {}
    for part in tail.split(","):
        key, _, value = part.partition("=")
        if key in _NUMBERS and value.isdigit() and (int(value) > 0 or key in _MAY_BE_NONE):
            options[key] = int(value)
        elif key == "pool" and value in _POOLS:
            options[key] = value
        else:
            raise StillmotionError(
                f"{part!r} in {text} is no option of an encoder; write {', '.join(f'{n}=<number>' for n in _NUMBERS)} "
                f"or pool={'|'.join(_POOLS)}"
            )
    return path, options
