"""encoder.json of a run that started from an encoder: its network and input, from which the run can be loaded alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.pretrained_encoders import build_i3d
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.methods.embedding_network import EmbeddingNetwork
from stillmotion.models.backbones.i3d import I3D_INPUT_CONFIG
from stillmotion.models.detector import dilate_last_stage
from stillmotion.models.input_config import CLIP_OPTIONS
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.encoder import build_encoder
from stillmotion.utils.files import read_json, write_json
from stillmotion.utils.typed_config import from_dict, to_dict

ENCODER_FILE = "encoder.json"
_HINT = "train again, or copy it from a backup of the run"


def write_encoder_file(run_dir: Path, encoder: Encoder) -> None:
    """Write encoder.json, so that the run can be loaded even if the encoder that it started from is gone.

    Args:
        run_dir: The run directory.
        encoder: The encoder that the run started from.
    """
    input_config = encoder.input_config
    clips = {name: getattr(input_config, name) for name in CLIP_OPTIONS.values()}
    data = describe_architecture(encoder) | {"input_config": clips | input_config.normalization._asdict()}
    write_json(run_dir / ENCODER_FILE, data)


def describe_architecture(encoder: Encoder) -> dict[str, Any]:
    """Describe the network of an encoder as JSON data, from which it can be built again."""
    origin = encoder.origin
    if origin.architecture is not None:
        return dict(origin.architecture)
    config = origin.pretrain_config
    return {
        "kind": origin.kind,
        "spec": origin.spec,
        "pretrain_config": None if config is None else to_dict(config),
    }


def load_downstream_encoder(spec: EncoderSpec, *, dilated: bool = False) -> Encoder:
    """Load the encoder of a run that started from another one: its network with the weights of the run.

    Args:
        spec: Spec of the run directory.
        dilated: Whether the run dilated the last stage of the backbone.
    """
    run = resolve_run_weights(spec.reject_options("pool"))
    architecture = _read_encoder_file(run.run_dir)
    initial = _rebuild(architecture, spec)
    if dilated:
        dilate_last_stage(initial.backbone)
    load_weights(initial.backbone, run.weights_file, prefix="backbone.")
    initial.origin = replace(
        initial.origin,
        spec=spec.canonical,
        kind=spec.kind,
        options=spec.options,
        run_dir=run.results_dir,
        build_initial=None,
        architecture={name: value for name, value in architecture.items() if name != "input_config"},
    )
    return initial


def _rebuild(architecture: Mapping[str, Any], spec: EncoderSpec) -> Encoder:
    """Build an encoder of this architecture, with the layer of the spec; its weights do not matter."""
    kind, layer = architecture["kind"], {name: value for name, value in spec.options.items() if name == "layer"}
    if kind in ("pretrain", "recipe"):
        config = from_dict(PretrainConfig, architecture["pretrain_config"])
        initial_spec = EncoderSpec(kind, architecture["spec"], layer)
        encoder = build_encoder(EmbeddingNetwork(config.method.model).backbone, config, initial_spec)
    elif kind == "i3d":
        origin = EncoderOrigin(architecture["spec"], kind, build_fresh=build_i3d)
        encoder = Encoder(build_i3d(), input_config=I3D_INPUT_CONFIG, layer=layer.get("layer"), origin=origin)
    else:  # a pretrained model is built from its own files
        encoder = spec.load_other(add_options(architecture["spec"], layer))
    clips = architecture["input_config"]
    # A new encoder, because the input of a whole video follows the input of a clip.
    return Encoder(
        encoder.backbone,
        encoder.static_dynamic,
        input_config=encoder.input_config.replace({name: clips[name] for name in CLIP_OPTIONS.values()}),
        layer=encoder.layer,
        origin=encoder.origin,
    )


def _read_encoder_file(run_dir: Path) -> dict[str, Any]:
    file = run_dir / ENCODER_FILE
    try:
        data = read_json(file, hint=_HINT)
    except OSError as error:
        raise StillmotionError(f"{file} cannot be read ({error.strerror}); {_HINT}") from None
    if not _is_valid(data):
        raise StillmotionError(f"{file} does not describe the network that the run started from; {_HINT}")
    return dict(data)


def _is_valid(data: Any) -> bool:
    if not isinstance(data, dict) or not all(isinstance(data.get(name), str) for name in ("kind", "spec")):
        return False
    clips = data.get("input_config")
    return (
        isinstance(data.get("pretrain_config"), dict | None)
        and isinstance(clips, dict)
        and all(type(clips.get(name)) is int for name in ("num_frames", "stride", "image_size"))
        and type(clips.get("fps")) in (int, float)
    )
