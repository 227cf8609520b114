"""Encoders of action detection runs."""

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.downstream import load_downstream_encoder
from stillmotion.training.run_dir import load_config


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load the encoder of an action detection run."""
    config = load_config(spec.path, DetectConfig)
    return load_downstream_encoder(spec, dilated=config.head.dilate_last_stage)
