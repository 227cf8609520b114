"""Encoders of transfer runs."""

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.patch_tokens import PatchTokenModel, load_patch_tokens
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import InputConfig


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load the encoder of a transfer run: the projected tokens of its image model."""
    if spec.options.get("pool") == "cls":
        raise StillmotionError(
            f"{spec.path} is a transfer run, which projects patches and has no class token. Remove pool, or compare "
            "with pool=mean."
        )
    run = resolve_run_weights(spec.reject_options("layer"))
    origin = EncoderOrigin(spec.canonical, spec.kind, spec.options, run.results_dir)
    return encoder_from_tokens(load_patch_tokens(run.run_dir, weights_file=run.weights_file), origin)


def encoder_from_tokens(tokens: PatchTokenModel, origin: EncoderOrigin | None = None) -> Encoder:
    """Build an encoder from an image model and its projection.

    Args:
        tokens: Image model and projection.
        origin: Where the encoder comes from.
    """
    input_config = InputConfig(8, 8, tokens.image_size, tokens.image_model.normalization)
    backbone = tokens.image_model.with_projection(tokens.projection)
    return Encoder(backbone, input_config=input_config, origin=origin)
