"""Encoders of this library: run folders of any training verb, and recipes, whose networks are as yet untrained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

from stillmotion.config import Config, from_json, read_config, to_json, verb_of
from stillmotion.config.detect import DetectConfig
from stillmotion.config.segment import SegmentConfig
from stillmotion.data.augment import AUGMENTS
from stillmotion.encoders.encoder import Encoder, Origin, first_network
from stillmotion.encoders.kinds import EncoderKind, Named, with_options
from stillmotion.encoders.models import i3d_network
from stillmotion.encoders.tokens import Tokens, load_tokens
from stillmotion.errors import StillmotionError
from stillmotion.files import read_json, write_json
from stillmotion.methods.method import Network
from stillmotion.nn.backbones import Backbone
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.detector import dilate_last_stage
from stillmotion.nn.foreign import I3D_INTAKE
from stillmotion.nn.images import TokensBackbone
from stillmotion.nn.intake import CLIPS, Intake, Normalisation
from stillmotion.nn.weights import load_weights
from stillmotion.recipes import recipe, recipe_names
from stillmotion.train.checkpoint import WEIGHTS, kept_epochs, kept_file

NETWORK = "encoder.json"  # in a run that started from an encoder: its network, and the clips it takes
READY = "features"  # in place of an encoder of `segment`: the features that lie with the data


class Trained(NamedTuple):
    """A run folder, the file of the weights that are asked for, and the folder for results and features of these."""

    folder: Path
    weights: Path
    results: Path


def note_network(folder: Path, encoder: Encoder) -> None:
    """Write down what a run folder needs to be an encoder itself, should the one it started from be gone."""
    intake = encoder.intake
    clips = {name: getattr(intake, name) for name in CLIPS}
    told = network_of(encoder) | {"intake": clips | intake.normalisation._asdict()}
    write_json(folder / NETWORK, told)


def network_of(encoder: Encoder) -> dict[str, Any]:
    """By what an encoder's network is built again; of one that was trained on, by where it began."""
    origin = encoder.origin
    if origin.network is not None:
        return dict(origin.network)
    return {
        "kind": origin.kind,
        "encoder": origin.text,
        "config": to_json(origin.config) if origin.config is not None else None,
    }


def _recipe(named: Named) -> Encoder:
    config = recipe(named.without("pool", "epoch").path)
    return _ours(first_network(config), config, named)


def _pretrained(named: Named) -> Encoder:
    run = trained(named.without("pool"))
    config = read_config(run.folder, Config)
    backbone = Network(config.method.model).backbone
    load_weights(backbone, run.weights, prefix="online.backbone.")
    return _ours(backbone, config, named, run.results)


def in_training(config: Config, weights: Mapping[str, Tensor]) -> Encoder:
    """What `load` would make of a pre-training run that ended now, on the CPU. weights: of its method, by name."""
    with torch.random.fork_rng(devices=[]):
        backbone = Network(config.method.model).backbone
    front = "online.backbone."
    backbone.load_state_dict({name.removeprefix(front): w for name, w in weights.items() if name.startswith(front)})
    return _ours(backbone, config, Named("pretrain", "")).eval()


def _ours(backbone: Backbone, config: Config, named: Named, folder: Path | None = None) -> Encoder:
    origin = Origin(
        named.text, named.kind, named.options, folder, config, lambda: Network(config.method.model).backbone
    )
    return Encoder(
        backbone,
        config.method.split,
        intake=intake_of(config, backbone),
        layer=named.options.get("layer"),
        origin=origin,
    )


def intake_of(config: Config, backbone: Backbone) -> Intake:
    """The clips that a pre-training run is shown, whose network begins with this backbone."""
    data, preset = config.data, AUGMENTS[config.data.augment]
    normalisation, entire = Normalisation(preset.mean, preset.std), False
    if isinstance(backbone, TokensCNN):  # tokens are of entire frames, as their model wants them
        normalisation, entire = backbone.images.normalisation, True
    return Intake(data.frames, data.stride, data.size, normalisation, data.fps, entire)


def _transferred(named: Named) -> Encoder:
    if named.options.get("pool") == "class":
        raise StillmotionError(
            f"{named.path} projects patches and no class token; leave pool out, or give both sides pool=patches"
        )
    run = trained(named.without("layer"))
    origin = Origin(named.text, named.kind, named.options, run.results)
    return projecting(load_tokens(run.folder, weights=run.weights), origin)


def projecting(tokens: Tokens, origin: Origin | None = None) -> Encoder:
    """The encoder of the tokens of a transfer run."""
    intake = Intake(8, 8, tokens.size, tokens.images.normalisation)
    return Encoder(TokensBackbone(tokens.images, tokens.projection), intake=intake, origin=origin)


def _finetuned(named: Named) -> Encoder:
    run = trained(named.without("pool"))
    return _tuned(named, run, _read_network(run.folder))


def _detecting(named: Named) -> Encoder:
    run = trained(named.without("pool"))
    config = read_config(run.folder, DetectConfig)
    noted = (run.folder / NETWORK).exists()  # which it was not before runs of `detect` were encoders
    network = _read_network(run.folder) if noted else network_of(named.load(config.encoder))
    encoder = _tuned(named, run, network, dilate=config.head.dilate)
    if "intake" not in network:
        encoder = encoder.shown(**config.data.asked())
    return encoder


def _segmenting(named: Named) -> Encoder:
    """The encoder whose features a head was trained on."""
    folder = trained(named.without("epoch")).folder
    config = read_config(folder, SegmentConfig)
    if config.encoder == READY:
        raise StillmotionError(f"{folder} was trained on features that lie with its data; it has no encoder")
    encoder = named.load(with_options(config.encoder, named.options))
    encoder = encoder.untrained() if config.untrained else encoder
    began = encoder.origin  # its options are those of both texts
    encoder.origin = Origin(
        named.text, named.kind, began.options, folder, began.config, began.fresh, network_of(encoder)
    )
    return encoder


def _tuned(named: Named, run: Trained, network: Mapping[str, Any], *, dilate: bool = False) -> Encoder:
    """The network that a run began with, under the weights that it ended with, or has kept."""
    began = _rebuilt(network, named)
    if dilate:
        dilate_last_stage(began.backbone)
    load_weights(began.backbone, run.weights, prefix=_prefix(run.weights))
    before, about = began.origin, _without_clips(network)
    origin = Origin(named.text, named.kind, named.options, run.results, before.config, before.fresh, about)
    return Encoder(began.backbone, began.split, intake=began.intake, layer=began.layer, origin=origin)


def _rebuilt(network: Mapping[str, Any], named: Named) -> Encoder:
    """An encoder of the same shape and with the layer that is asked for; what weights it has is of no account."""
    kind = "pretrain" if network["kind"] == "run" else network["kind"]  # what it was called before
    layer = {name: value for name, value in named.options.items() if name == "layer"}
    if kind in ("pretrain", "recipe"):
        config = from_json(network.get("config") or {})
        encoder = _ours(Network(config.method.model).backbone, config, Named(kind, network["encoder"], layer))
    elif kind == "i3d":
        origin = Origin(network["encoder"], kind, fresh=i3d_network)
        encoder = Encoder(i3d_network(), intake=I3D_INTAKE, layer=layer.get("layer"), origin=origin)
    else:  # a model from elsewhere is built by its own files
        encoder = named.load(with_options(network["encoder"], layer))
    clips = network.get("intake") or (network.get("config") or {}).get("data", {})
    return encoder.shown(**{name: clips.get(name) for name in CLIPS})


def _without_clips(network: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in network.items() if name != "intake"}


def _read_network(folder: Path) -> dict[str, Any]:
    """What `note_network` wrote; an error where it is missing, torn or of other fields."""
    file, remedy = folder / NETWORK, "train again, or take it from a copy of the run"
    try:
        found = read_json(file, remedy=remedy)
    except OSError as error:
        raise StillmotionError(f"{file} cannot be read ({error.strerror}); {remedy}") from None
    said = found if isinstance(found, dict) else {}
    clips = said.get("intake", {"frames": 1, "stride": 1, "size": 1})
    good = (
        all(isinstance(said.get(name), str) for name in ("kind", "encoder")),
        isinstance(said.get("config"), dict | None),
        isinstance(clips, dict) and all(type(clips.get(name)) is int for name in ("frames", "stride", "size")),
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


def trained(named: Named) -> Trained:
    """The weights of the run that a text names; an error where they are not there."""
    folder, epoch = Path(named.path), named.options.get("epoch")
    if epoch is None:
        if not (folder / WEIGHTS).exists():
            raise StillmotionError(
                f"{folder} has no {WEIGHTS} yet; the same {named.kind} command resumes the run to its first checkpoint"
            )
        return Trained(folder, folder / WEIGHTS, folder)
    file = kept_file(folder, epoch)
    if not file.exists():
        kept = ", ".join(map(str, kept_epochs(folder))) or "none"
        raise StillmotionError(
            f"{folder} keeps no weights of epoch {epoch} (kept: {kept}); train it with --train.keep {epoch}"
        )
    return Trained(folder, file, file.with_suffix(""))


def _wrote(verb: str) -> Any:
    return lambda path: verb_of(path) == verb


_LOADERS = {
    "pretrain": _pretrained,
    "transfer": _transferred,
    "finetune": _finetuned,
    "detect": _detecting,
    "segment": _segmenting,
}
RUNS = {
    **{verb: EncoderKind("a run folder of any training verb", _wrote(verb), load) for verb, load in _LOADERS.items()},
    "recipe": EncoderKind(
        "a recipe's name, one of `stillmotion pretrain --list`", lambda path: path in recipe_names(), _recipe
    ),
}
