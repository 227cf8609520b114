"""Encoders of pretraining runs and of recipes."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from stillmotion.data.transforms.augment import AUGMENTATIONS
from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.methods.embedding_network import EmbeddingNetwork
from stillmotion.models.backbones import Backbone
from stillmotion.models.backbones.tokens_cnn import TokensCNN
from stillmotion.models.input_config import InputConfig, Normalization
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.tasks import get_recipe

_PREFIX = "online.backbone."


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load the encoder of a pretraining run."""
    run = resolve_run_weights(spec.reject_options("pool"))
    config = load_config(run.run_dir, PretrainConfig)
    backbone = EmbeddingNetwork(config.method.model).backbone
    load_weights(backbone, run.weights_file, prefix=_PREFIX)
    return build_encoder(backbone, config, spec, run.results_dir)


def load_recipe_encoder(spec: EncoderSpec) -> Encoder:
    """Build the untrained encoder of a recipe."""
    config = get_recipe(spec.reject_options("pool", "epoch").path)
    return build_encoder(build_initial_backbone(config), config, spec)


def encoder_from_state(config: PretrainConfig, state_dict: Mapping[str, Tensor]) -> Encoder:
    """Build the encoder of a pretraining run at its current weights, on the CPU.

    Args:
        config: Configuration of the run.
        state_dict: State dict of its `Method`.
    """
    with torch.random.fork_rng(devices=[]):
        backbone = EmbeddingNetwork(config.method.model).backbone
    weights = {name.removeprefix(_PREFIX): w for name, w in state_dict.items() if name.startswith(_PREFIX)}
    backbone.load_state_dict(weights)
    return build_encoder(backbone, config, EncoderSpec("pretrain", "")).eval()


def build_encoder(
    backbone: Backbone, config: PretrainConfig, spec: EncoderSpec, run_dir: Path | None = None
) -> Encoder:
    """Build an encoder from a pretrained backbone.

    Args:
        backbone: The backbone.
        config: Configuration of its pretraining.
        spec: Spec that it is loaded by.
        run_dir: Directory for results and features; None for a recipe.
    """
    origin = EncoderOrigin(
        spec.canonical,
        spec.kind,
        spec.options,
        run_dir,
        config,
        build_fresh=lambda: EmbeddingNetwork(config.method.model).backbone,
        build_initial=lambda: build_initial_backbone(config),
    )
    return Encoder(
        backbone,
        config.method.static_dynamic,
        input_config=training_input_config(config, backbone),
        layer=spec.options.get("layer"),
        origin=origin,
    )


def build_initial_backbone(config: PretrainConfig) -> Backbone:
    """Build the backbone that a run with this configuration starts from, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        backbone = EmbeddingNetwork(config.method.model).backbone
    if config.method.model.init_weights:
        load_weights(backbone, config.method.model.init_weights)
    return backbone.eval()


def training_input_config(config: PretrainConfig, backbone: Backbone) -> InputConfig:
    """Return the input that a pretraining run trains its backbone on.

    Args:
        config: Configuration of the run.
        backbone: Its backbone.
    """
    data, preset = config.data, AUGMENTATIONS[config.data.augment]
    normalization, full_frame = Normalization(preset.mean, preset.std), False
    if isinstance(backbone, TokensCNN):  # tokens are of full frames, normalized as their image model needs them
        normalization, full_frame = backbone.image_model.normalization, True
    return InputConfig(data.num_frames, data.frame_stride, data.image_size, normalization, data.fps, full_frame)
