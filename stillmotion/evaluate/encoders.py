"""Any encoder by one text: a run, a recipe, a transformers model or I3D, and what it wants to be shown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import safetensors
import torch

from stillmotion.config import Config, DataConfig, from_json, load_config
from stillmotion.data.augment import AUGMENTS
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.tokens import load_tokens
from stillmotion.methods.method import MethodConfig, ModelConfig, Network
from stillmotion.nn.backbones import Backbone, create_backbone
from stillmotion.nn.encoder import Encoder
from stillmotion.nn.foreign import I3D_INTAKE, Intake, Normalisation, Renormalised, load_transformers
from stillmotion.nn.images import TokensBackbone
from stillmotion.nn.weights import load_weights
from stillmotion.recipes import recipe, recipe_names
from stillmotion.train.checkpoint import WEIGHTS
from stillmotion.train.process import choose_device

ORIGIN = "encoder.json"  # in a fine-tuning run: which encoder it started from, and the clips it takes
_I3D = "i3d:"
_I3D_KEY = "Mixed_5c.b3b.conv3d.weight"
_NUMBERS = ("frames", "stride", "size", "layer")
_POOLS = ("class", "patches")
# Clips for networks from elsewhere come in this preset's normalisation, which they turn into their own.
_GIVEN = "none"


@dataclass(frozen=True)
class Spec:
    """Which encoder a text names.

    kind: run, transfer and finetune (runs of the verbs of that name) and recipe are this library's; transformers and
        i3d were trained elsewhere.
    path: a folder, a file or a recipe's name. options: what stands behind the text's @.
    """

    kind: Literal["run", "transfer", "finetune", "recipe", "transformers", "i3d"]
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


def read_spec(text: str | Path) -> Spec:
    """What kind of encoder a text names; an error if it names none. Nothing is loaded."""
    path, options = _parted(str(text))
    folder = Path(path)
    if path.startswith(_I3D):
        file = Path(path.removeprefix(_I3D))
        if not file.is_file():
            raise StillmotionError(f"there is no file {file}; give I3D's weights as i3d:<file.safetensors>")
        return Spec("i3d", str(file), options)
    if folder.is_dir():
        return Spec(_kind_of_folder(folder), path, options)
    if folder.is_file():
        if _is_i3d(folder):
            return Spec("i3d", path, options)
        raise StillmotionError(f"{folder} is a file, but not of I3D's weights; give a run folder or a model's folder")
    if path in recipe_names():
        return Spec("recipe", path, options)
    raise StillmotionError(
        f"{text} is neither a run folder nor a recipe, nor a model's folder or i3d:<file>; give what `pretrain --out` "
        "wrote to, or one of `stillmotion pretrain --list`"
    )


def load_encoder(path_or_recipe: str | Path, *, device: str | None = None) -> tuple[Encoder, Config]:
    """An encoder in evaluation mode, and the configuration that says what clips it takes.

    path_or_recipe: a run folder of `pretrain`, `transfer` or `finetune`; a recipe's name, which gives its network as
        yet untrained; a folder that transformers wrote, of a model of videos, or of images, whose frames are embedded
        one by one; or i3d:<file.safetensors>.
        Behind an @ stand options: "dinov2@frames=4,size=112,pool=patches,layer=11" (the last two for transformers).
    device: "auto" is CUDA where there is one; None is the CPU.

    Clips are normalised as config.data.augment says; a network from elsewhere turns that into its own normalisation.
    """
    spec = read_spec(path_or_recipe)
    only_transformers = {"pool", "layer"} & spec.options.keys()
    if only_transformers and spec.kind != "transformers":
        raise StillmotionError(f"{spec.path} has no option {only_transformers.pop()!r}; it is for transformers models")
    if spec.kind == "run":
        encoder, config = _of_run(Path(spec.path))
    elif spec.kind == "transfer":
        found = load_tokens(spec.path)
        shown = Intake(8, 8, found.size, found.images.normalisation)
        encoder, config = _from_elsewhere(TokensBackbone(found.images, found.projection), shown, "transfer")
    elif spec.kind == "finetune":
        encoder, config = _of_finetuning(Path(spec.path))
    elif spec.kind == "recipe":
        config = recipe(spec.path)
        encoder = untrained(config)
    elif spec.kind == "i3d":
        encoder, config = _i3d(spec.path)
    else:
        taken = {key: spec.options[key] for key in ("pool", "layer") if key in spec.options}
        model, intake = load_transformers(spec.path, **taken)
        encoder, config = _from_elsewhere(model, intake, model.kind)
    asked = {key: spec.options[key] for key in ("frames", "stride", "size") if key in spec.options}
    return encoder.to(choose_device(device or "cpu")), replace(config, data=replace(config.data, **asked))


def untrained(config: Config) -> Encoder:
    """The very network that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = Network(config.method.model).backbone
    if config.method.model.weights:
        load_weights(backbone, config.method.model.weights)
    return Encoder(backbone, config.method.split).eval()


def origin(text: str | Path) -> dict[str, Any]:
    """What an encoder's network is by: the kind, and the text that names it; a fine-tuned one's is where it began."""
    spec = read_spec(text)
    if spec.kind == "finetune":
        return _read_origin(Path(spec.path))
    return {"kind": spec.kind, "encoder": named(spec)}


def named(spec: Spec) -> str:
    """The text that names this encoder from any folder."""
    place = spec.path if spec.kind == "recipe" else str(Path(spec.path).resolve())
    options = ",".join(f"{key}={value}" for key, value in spec.options.items())
    return (_I3D if spec.kind == "i3d" else "") + place + (f"@{options}" if options else "")


def fresh(kind: str, config: Config) -> Encoder:
    """The network of an encoder of this kind, with weights drawn from torch's generator."""
    if kind in ("run", "recipe"):
        return Encoder(Network(config.method.model).backbone, config.method.split)
    if kind == "i3d":
        return _i3d()[0]
    raise StillmotionError(f"a {kind} model has no fresh weights here; leave --untrained out")


def _of_finetuning(folder: Path) -> tuple[Encoder, Config]:
    began = _read_origin(folder)
    config = from_json(began["config"])
    if not (folder / WEIGHTS).exists():
        raise StillmotionError(
            f"{folder} has no {WEIGHTS} yet; the same finetune command resumes the run to its first checkpoint"
        )
    # A model from elsewhere is built by its own files.
    foreign = began["kind"] in ("transformers", "transfer")
    encoder = load_encoder(began["encoder"])[0] if foreign else fresh(began["kind"], config)
    load_weights(encoder.backbone, folder / WEIGHTS, prefix="backbone.")
    return encoder.eval(), config


def _read_origin(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / ORIGIN).read_text())
    except (OSError, ValueError) as error:
        raise StillmotionError(f"{folder / ORIGIN} cannot be read ({error}); fine-tune again") from None


def _i3d(weights: str | None = None) -> tuple[Encoder, Config]:
    backbone = create_backbone("i3d", keep_time=False)  # the strides that the weights were trained with
    if weights:
        load_weights(backbone, weights)
    return _from_elsewhere(backbone, I3D_INTAKE, "i3d")


def _of_run(folder: Path) -> tuple[Encoder, Config]:
    config = load_config(folder)
    if not (folder / WEIGHTS).exists():
        raise StillmotionError(
            f"{folder} has no {WEIGHTS} yet; the same pretrain command resumes the run to its first checkpoint"
        )
    network = Network(config.method.model)
    load_weights(network.backbone, folder / WEIGHTS, prefix="online.backbone.")
    return Encoder(network.backbone, config.method.split).eval(), config


def _from_elsewhere(backbone: Backbone, intake: Intake, name: str) -> tuple[Encoder, Config]:
    preset = AUGMENTS[_GIVEN]
    given = Normalisation(preset.mean, preset.std)
    config = Config(
        data=DataConfig(frames=intake.frames, stride=intake.stride, size=intake.size, augment=_GIVEN),
        method=MethodConfig(model=ModelConfig(backbone=name)),
    )
    return Encoder(Renormalised(backbone, given=given, own=intake.normalisation)).eval(), config


def _parted(text: str) -> tuple[str, dict[str, Any]]:
    """The path, and the options behind its last @; a path that exists may hold an @ itself."""
    path, sign, tail = text.rpartition("@")
    if not sign or Path(text).exists():
        return text, {}
    options: dict[str, Any] = {}
    for part in tail.split(","):
        key, _, value = part.partition("=")
        if key in _NUMBERS and value.isdigit() and (int(value) > 0 or key == "layer"):
            options[key] = int(value)
        elif key == "pool" and value in _POOLS:
            options[key] = value
        else:
            raise StillmotionError(
                f"{part!r} in {text} is no option of an encoder; write {', '.join(f'{n}=<number>' for n in _NUMBERS)} "
                f"or pool={'|'.join(_POOLS)}"
            )
    return path, options


def _kind_of_folder(folder: Path) -> Literal["run", "transfer", "finetune", "transformers"]:
    try:
        said = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return "run"
    if "smoothing" in said.get("head", ()):
        return "finetune"
    return "transformers" if "model_type" in said else "transfer" if "images" in said else "run"


def _is_i3d(file: Path) -> bool:
    if file.suffix != ".safetensors":
        return False
    try:
        with safetensors.safe_open(file, "pt") as opened:
            return any(key.endswith(_I3D_KEY) for key in opened.keys())  # noqa: SIM118
    except (safetensors.SafetensorError, OSError):
        return False
