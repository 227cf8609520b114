"""Encoders of transfer runs."""

from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.patch_tokens import encoder_from_tokens, load_patch_tokens
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.errors import StillmotionError


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
