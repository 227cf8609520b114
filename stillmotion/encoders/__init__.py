"""Encoders: any network by one text, what it wants to be shown, and what it says of videos."""

from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders.loading import default_encoder_spec
from stillmotion.encoders.encoder import Encoder, EncoderOrigin
from stillmotion.encoders.embedding import Embeddings
from stillmotion.encoders.feature_extraction import (
    FEATURE_KINDS,
    Features,
    ProgressCallback,
    resolve_num_clips,
    extract_features,
)
from stillmotion.utils.option_types import FeatureKind
from stillmotion.encoders.loading import ENCODER_KINDS, canonical_spec, load, load_comparable, parse_spec

__all__ = [
    "ENCODER_KINDS",
    "FEATURE_KINDS",
    "Encoder",
    "Features",
    "FeatureKind",
    "EncoderOrigin",
    "ProgressCallback",
    "LoaderConfig",
    "Embeddings",
    "default_encoder_spec",
    "resolve_num_clips",
    "extract_features",
    "canonical_spec",
    "load",
    "load_comparable",
    "parse_spec",
]
