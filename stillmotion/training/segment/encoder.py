"""Encoders of temporal action segmentation runs."""

from dataclasses import replace

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.run_weights import resolve_run_weights
from stillmotion.encoders.spec import EncoderSpec, add_options
from stillmotion.errors import StillmotionError
from stillmotion.training.downstream import describe_architecture
from stillmotion.training.run_dir import load_config
from stillmotion.training.segment.config import PRECOMPUTED_FEATURES, SegmentConfig


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load the frozen encoder whose features a segmentation head was trained on."""
    run_dir = resolve_run_weights(spec.reject_options("epoch")).run_dir
    config = load_config(run_dir, SegmentConfig)
    if config.encoder == PRECOMPUTED_FEATURES:
        raise StillmotionError(f"{run_dir} was trained on precomputed features and has no encoder.")
    encoder = spec.load_other(add_options(config.encoder, spec.options))
    encoder = encoder.untrained() if config.untrained else encoder
    encoder.origin = replace(
        encoder.origin,
        spec=spec.canonical,
        kind=spec.kind,
        run_dir=run_dir,
        build_initial=None,
        architecture=describe_architecture(encoder),
    )
    return encoder
