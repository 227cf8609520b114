"""The encoder that a run trained, or the one it started from."""

from pathlib import Path

import torch

from stillmotion.config import Config, load_config
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Network
from stillmotion.nn.encoder import Encoder
from stillmotion.nn.weights import load_weights
from stillmotion.recipes import recipe, recipe_names
from stillmotion.train.checkpoint import WEIGHTS
from stillmotion.train.process import choose_device


def load_encoder(path_or_recipe: str | Path, *, device: str | None = None) -> tuple[Encoder, Config]:
    """An encoder in evaluation mode, and the configuration it belongs to.

    path_or_recipe: a run folder, or a recipe's name, which gives its network as yet untrained.
    device: "auto" is CUDA where there is one; None is the CPU.
    """
    folder = Path(path_or_recipe)
    if folder.is_dir():
        config = load_config(folder)
        if not (folder / WEIGHTS).exists():
            raise StillmotionError(
                f"{folder} has no {WEIGHTS} yet; the same pretrain command resumes the run to its first checkpoint"
            )
        network = Network(config.method.model)
        load_weights(network.backbone, folder / WEIGHTS, prefix="online.backbone.")
        encoder = Encoder(network.backbone, config.method.split).eval()
    elif str(path_or_recipe) in recipe_names():
        config = recipe(str(path_or_recipe))
        encoder = untrained(config)
    else:
        raise StillmotionError(
            f"{path_or_recipe} is neither a run folder nor a recipe; give what `pretrain --out` wrote to, or one of "
            "`stillmotion pretrain --list`"
        )
    return encoder.to(choose_device(device or "cpu")), config


def untrained(config: Config) -> Encoder:
    """The very network that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = Network(config.method.model).backbone
    if config.method.model.weights:
        load_weights(backbone, config.method.model.weights)
    return Encoder(backbone, config.method.split).eval()
