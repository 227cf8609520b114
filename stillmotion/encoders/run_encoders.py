"""Encoders of this library: run folders of any training verb, and recipes, whose networks are as yet untrained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

from stillmotion.data.transforms.augment import AUGMENTATIONS
from stillmotion.encoders.encoder import Encoder, EncoderOrigin, build_initial_backbone
from stillmotion.encoders.patch_tokens import PatchTokenModel, load_patch_tokens
from stillmotion.encoders.pretrained_encoders import build_i3d
from stillmotion.encoders.spec import EncoderKind, EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.methods.network import EmbeddingNetwork
from stillmotion.models.backbones import Backbone
from stillmotion.models.backbones.i3d import I3D_INPUT_CONFIG
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.models.detector import dilate_last_stage
from stillmotion.models.input_config import CLIP_OPTIONS, InputConfig, Normalization
from stillmotion.models.pretrained.frozen_image_model import ProjectedTokenBackbone
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.checkpoint import WEIGHTS_FILE, epoch_weights_path, list_saved_epochs
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config, run_verb
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.tasks import get_recipe, recipe_table
from stillmotion.utils.files import read_json, write_json
from stillmotion.utils.typed_config import from_dict, to_dict

ENCODER_FILE = "encoder.json"  # in a run that started from an encoder: its network, and the clips it takes
PRECOMPUTED_FEATURES = "precomputed"  # in place of an encoder of `segment`: the features that lie with the data


class RunWeights(NamedTuple):
    """A run folder, the file of the weights that are asked for, and the folder for results and features of these."""

    run_dir: Path
    weights_file: Path
    results_dir: Path


def write_encoder_file(run_dir: Path, encoder: Encoder) -> None:
    """Write down what a run folder needs to be an encoder itself, should the one it started from be gone."""
    intake = encoder.input_config
    clips = {name: getattr(intake, name) for name in CLIP_OPTIONS.values()}
    told = describe_architecture(encoder) | {"input_config": clips | intake.normalization._asdict()}
    write_json(run_dir / ENCODER_FILE, told)


def describe_architecture(encoder: Encoder) -> dict[str, Any]:
    """By what an encoder's network is built again; of one that was trained on, by where it began."""
    origin = encoder.origin
    if origin.architecture is not None:
        return dict(origin.architecture)
    return {
        "kind": origin.kind,
        "spec": origin.spec,
        "pretrain_config": to_dict(origin.pretrain_config) if origin.pretrain_config is not None else None,
    }


def _load_recipe(spec: EncoderSpec) -> Encoder:
    config = get_recipe(spec.reject_options("pool", "epoch").path)
    return _build_encoder(build_initial_backbone(config), config, spec)


def _load_pretrain(spec: EncoderSpec) -> Encoder:
    run = resolve_run_weights(spec.reject_options("pool"))
    config = load_config(run.run_dir, PretrainConfig)
    backbone = EmbeddingNetwork(config.method.model).backbone
    load_weights(backbone, run.weights_file, prefix="online.backbone.")
    return _build_encoder(backbone, config, spec, run.results_dir)


def encoder_from_state(config: PretrainConfig, state_dict: Mapping[str, Tensor]) -> Encoder:
    """What `load` would make of a pre-training run that ended now, on the CPU. weights: of its method, by name."""
    with torch.random.fork_rng(devices=[]):
        backbone = EmbeddingNetwork(config.method.model).backbone
    front = "online.backbone."
    backbone.load_state_dict({name.removeprefix(front): w for name, w in state_dict.items() if name.startswith(front)})
    return _build_encoder(backbone, config, EncoderSpec("pretrain", "")).eval()


def _build_encoder(
    backbone: Backbone, config: PretrainConfig, spec: EncoderSpec, run_dir: Path | None = None
) -> Encoder:
    origin = EncoderOrigin(
        spec.canonical, spec.kind, spec.options, run_dir, config, lambda: EmbeddingNetwork(config.method.model).backbone
    )
    return Encoder(
        backbone,
        config.method.static_dynamic,
        input_config=training_input_config(config, backbone),
        layer=spec.options.get("layer"),
        origin=origin,
    )


def training_input_config(config: PretrainConfig, backbone: Backbone) -> InputConfig:
    """The clips that a pre-training run is shown, whose network begins with this backbone."""
    data, preset = config.data, AUGMENTATIONS[config.data.augment]
    normalisation, entire = Normalization(preset.mean, preset.std), False
    if isinstance(backbone, TokensCNN):  # tokens are of entire frames, as their model wants them
        normalisation, entire = backbone.image_model.normalization, True
    return InputConfig(data.num_frames, data.frame_stride, data.image_size, normalisation, data.fps, entire)


def _load_transfer(spec: EncoderSpec) -> Encoder:
    if spec.options.get("pool") == "cls":
        raise StillmotionError(
            f"{spec.path} projects patches and no class token; leave pool out, or give both sides pool=mean"
        )
    run = resolve_run_weights(spec.reject_options("layer"))
    origin = EncoderOrigin(spec.canonical, spec.kind, spec.options, run.results_dir)
    return encoder_from_tokens(load_patch_tokens(run.run_dir, weights_file=run.weights_file), origin)


def encoder_from_tokens(tokens: PatchTokenModel, origin: EncoderOrigin | None = None) -> Encoder:
    """The encoder of the tokens of a transfer run."""
    intake = InputConfig(8, 8, tokens.image_size, tokens.image_model.normalization)
    return Encoder(ProjectedTokenBackbone(tokens.image_model, tokens.projection), input_config=intake, origin=origin)


def _load_finetune(spec: EncoderSpec) -> Encoder:
    run = resolve_run_weights(spec.reject_options("pool"))
    return _load_downstream(spec, run, _read_encoder_file(run.run_dir))


def _load_detect(spec: EncoderSpec) -> Encoder:
    run = resolve_run_weights(spec.reject_options("pool"))
    config = load_config(run.run_dir, DetectConfig)
    noted = (run.run_dir / ENCODER_FILE).exists()  # which it was not before runs of `detect` were encoders
    network = _read_encoder_file(run.run_dir) if noted else describe_architecture(spec.load_other(config.encoder))
    encoder = _load_downstream(spec, run, network, dilate=config.head.dilate_last_stage)
    if "input_config" not in network:
        encoder = encoder.with_input(**config.data.explicit_values())
    return encoder


def _load_segment(spec: EncoderSpec) -> Encoder:
    """The encoder whose features a head was trained on."""
    folder = resolve_run_weights(spec.reject_options("epoch")).run_dir
    config = load_config(folder, SegmentConfig)
    if config.encoder == PRECOMPUTED_FEATURES:
        raise StillmotionError(f"{folder} was trained on features that lie with its data; it has no encoder")
    encoder = spec.load_other(add_options(config.encoder, spec.options))
    encoder = encoder.untrained() if config.untrained else encoder
    began = encoder.origin  # its options are those of both texts
    encoder.origin = EncoderOrigin(
        spec.canonical,
        spec.kind,
        began.options,
        folder,
        began.pretrain_config,
        began.build_fresh,
        describe_architecture(encoder),
    )
    return encoder


def _load_downstream(
    spec: EncoderSpec, run: RunWeights, architecture: Mapping[str, Any], *, dilate: bool = False
) -> Encoder:
    """The network that a run began with, under the weights that it ended with, or has kept."""
    began = _rebuild(architecture, spec)
    if dilate:
        dilate_last_stage(began.backbone)
    load_weights(began.backbone, run.weights_file, prefix=_prefix(run.weights_file))
    before, about = began.origin, _without_input(architecture)
    origin = EncoderOrigin(
        spec.canonical, spec.kind, spec.options, run.results_dir, before.pretrain_config, before.build_fresh, about
    )
    return Encoder(
        began.backbone, began.static_dynamic, input_config=began.input_config, layer=began.layer, origin=origin
    )


def _rebuild(architecture: Mapping[str, Any], spec: EncoderSpec) -> Encoder:
    """An encoder of the same shape and with the layer that is asked for; what weights it has is of no account."""
    kind = "pretrain" if architecture["kind"] == "run" else architecture["kind"]  # what it was called before
    layer = {name: value for name, value in spec.options.items() if name == "layer"}
    if kind in ("pretrain", "recipe"):
        config = from_dict(PretrainConfig, architecture.get("pretrain_config") or {})
        encoder = _build_encoder(
            EmbeddingNetwork(config.method.model).backbone, config, EncoderSpec(kind, architecture["spec"], layer)
        )
    elif kind == "i3d":
        origin = EncoderOrigin(architecture["spec"], kind, build_fresh=build_i3d)
        encoder = Encoder(build_i3d(), input_config=I3D_INPUT_CONFIG, layer=layer.get("layer"), origin=origin)
    else:  # a model from elsewhere is built by its own files
        encoder = spec.load_other(add_options(architecture["spec"], layer))
    clips = architecture.get("input_config") or (architecture.get("pretrain_config") or {}).get("data", {})
    return encoder.with_input(**{name: clips.get(name) for name in CLIP_OPTIONS.values()})


def _without_input(architecture: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in architecture.items() if name != "input_config"}


def _read_encoder_file(run_dir: Path) -> dict[str, Any]:
    """What `note_network` wrote; an error where it is missing, torn or of other fields."""
    file, remedy = run_dir / ENCODER_FILE, "train again, or take it from a copy of the run"
    try:
        found = read_json(file, hint=remedy)
    except OSError as error:
        raise StillmotionError(f"{file} cannot be read ({error.strerror}); {remedy}") from None
    said = found if isinstance(found, dict) else {}
    clips = said.get("input_config", {"num_frames": 1, "stride": 1, "image_size": 1})
    good = (
        all(isinstance(said.get(name), str) for name in ("kind", "spec")),
        isinstance(said.get("pretrain_config"), dict | None),
        isinstance(clips, dict)
        and all(type(clips.get(name)) is int for name in ("num_frames", "stride", "image_size")),
        isinstance(clips, dict) and type(clips.get("fps", 0.0)) in (int, float),  # it came later
    )
    if not all(good):
        raise StillmotionError(f"{file} does not tell the network that the run began with; {remedy}")
    return said


def _prefix(file: Path) -> str:
    """Where a backbone's names start; networks from elsewhere once stood within another module."""
    try:
        with safetensors.safe_open(file, "pt") as opened:
            names = list(opened.keys())
    except (OSError, safetensors.SafetensorError) as error:
        raise StillmotionError(f"{file} is not a readable safetensors file ({error}); train again") from None
    return "backbone.backbone." if "backbone.scale" in names else "backbone."


def resolve_run_weights(spec: EncoderSpec) -> RunWeights:
    """The weights of the run that a text names; an error where they are not there."""
    folder, epoch = Path(spec.path), spec.options.get("epoch")
    if epoch is None:
        if not (folder / WEIGHTS_FILE).exists():
            raise StillmotionError(
                f"{folder} has no {WEIGHTS_FILE} yet; the same {spec.kind} command resumes the run to its first checkpoint"
            )
        return RunWeights(folder, folder / WEIGHTS_FILE, folder)
    file = epoch_weights_path(folder, epoch)
    if not file.exists():
        kept = ", ".join(map(str, list_saved_epochs(folder))) or "none"
        raise StillmotionError(
            f"{folder} keeps no weights of epoch {epoch} (kept: {kept}); train it with --train.save-epochs {epoch}"
        )
    return RunWeights(folder, file, file.with_suffix(""))


def _is_run_of(verb: str) -> Any:
    return lambda path: run_verb(path) == verb


_LOADERS = {
    "pretrain": _load_pretrain,
    "transfer": _load_transfer,
    "finetune": _load_finetune,
    "detect": _load_detect,
    "segment": _load_segment,
}
RUN_KINDS = {
    **{
        verb: EncoderKind("a run folder of any training verb", _is_run_of(verb), load)
        for verb, load in _LOADERS.items()
    },
    "recipe": EncoderKind(
        "a recipe's name, one of `stillmotion pretrain --list-recipes`",
        lambda path: path in recipe_table("pretrain"),
        _load_recipe,
    ),
}
