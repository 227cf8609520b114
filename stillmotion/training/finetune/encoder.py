"""Encoders of fine-tuning runs."""

from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.training.downstream import load_downstream_encoder


def load_encoder(spec: EncoderSpec) -> Encoder:
    """Load the fine-tuned encoder of a run."""
    return load_downstream_encoder(spec)
