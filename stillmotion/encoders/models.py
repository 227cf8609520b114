"""Encoders that were trained elsewhere: transformers' models from a folder or the hub, original checkpoints, I3D."""

import json
from functools import partial
from pathlib import Path

import safetensors

from stillmotion.encoders.encoder import Encoder, Origin
from stillmotion.encoders.kinds import EncoderKind, Named
from stillmotion.nn.backbones import Backbone, create_backbone
from stillmotion.nn.families import FAMILIES
from stillmotion.nn.foreign import I3D_INTAKE, TransformersBackbone, load_transformers
from stillmotion.nn.hub import fetched, is_hub_name
from stillmotion.nn.intake import Intake
from stillmotion.nn.originals import load_original
from stillmotion.nn.weights import load_weights

_I3D_KEY = "Mixed_5c.b3b.conv3d.weight"
_USUAL_SIZE = 224
_WHAT = f"an original checkpoint as <family>:<file> ({', '.join(FAMILIES)})"


def _transformers(named: Named) -> Encoder:
    return _loaded(named, named.path)


def _hub(named: Named) -> Encoder:
    return _loaded(named, fetched(named.path))


def _loaded(named: Named, folder: str | Path) -> Encoder:
    model, intake = load_transformers(folder, pool=named.options.get("pool"), layer=named.options.get("layer"))
    return Encoder(model, intake=intake, origin=_origin(named))


def _original(named: Named, *, family: str) -> Encoder:
    model = load_original(named.path, family)
    backbone = TransformersBackbone(model, pool=named.options.get("pool"), layer=named.options.get("layer"))
    intake = Intake(8, 8, min(backbone.native, _USUAL_SIZE), FAMILIES[family].normalisation)
    return Encoder(backbone, intake=intake, origin=_origin(named))


def i3d_network() -> Backbone:
    """I3D with the strides and the borders that its weights were trained with."""
    return create_backbone("i3d", keep_time=False, border="zeros")


def _i3d(named: Named) -> Encoder:
    backbone = i3d_network()
    load_weights(backbone, named.without("pool").path)
    layer = named.options.get("layer")
    return Encoder(backbone, intake=I3D_INTAKE, layer=layer, origin=_origin(named))


def _origin(named: Named) -> Origin:
    fresh = i3d_network if named.kind == "i3d" else None
    return Origin(named.text, named.kind, named.options, fresh=fresh)


def _is_transformers(path: str) -> bool:
    try:
        said = json.loads((Path(path) / "config.json").read_text())
        return isinstance(said, dict) and ("model_type" in said or "auto_map" in said)
    except (OSError, ValueError):
        return False


def _is_i3d(path: str) -> bool:
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return False
    try:
        with safetensors.safe_open(path, "pt") as opened:
            return any(key.endswith(_I3D_KEY) for key in opened.keys())  # noqa: SIM118
    except (safetensors.SafetensorError, OSError):
        return False


MODELS = {
    "transformers": EncoderKind("a folder that transformers wrote", _is_transformers, _transformers),
    **{
        family: EncoderKind(_WHAT, lambda path: False, load)
        for family, load in ((family, partial(_original, family=family)) for family in FAMILIES)
    },
    "i3d": EncoderKind("I3D's weights as i3d:<file.safetensors>", _is_i3d, _i3d),
    "hub": EncoderKind("a model's name on the Hugging Face hub, such as facebook/dinov2-small", is_hub_name, _hub),
}
