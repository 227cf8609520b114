"""Encoders: load any network by its spec string, and embed videos with it."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.data.loading.loader_config import LoaderConfig as LoaderConfig
    from stillmotion.encoders.embedding import Embedding as Embedding
    from stillmotion.encoders.embedding import Embeddings as Embeddings
    from stillmotion.encoders.embedding_export import export_embeddings as export_embeddings
    from stillmotion.encoders.encoder import Encoder as Encoder
    from stillmotion.encoders.encoder import EncoderOrigin as EncoderOrigin
    from stillmotion.encoders.feature_cache import load_or_extract_features as load_or_extract_features
    from stillmotion.encoders.feature_extraction import FEATURE_KINDS as FEATURE_KINDS
    from stillmotion.encoders.feature_extraction import ClipViews as ClipViews
    from stillmotion.encoders.feature_extraction import Features as Features
    from stillmotion.encoders.feature_extraction import extract_features as extract_features
    from stillmotion.encoders.feature_extraction import resolve_num_clips as resolve_num_clips
    from stillmotion.encoders.loading import ENCODER_KINDS as ENCODER_KINDS
    from stillmotion.encoders.loading import canonical_spec as canonical_spec
    from stillmotion.encoders.loading import default_encoder_spec as default_encoder_spec
    from stillmotion.encoders.loading import load as load
    from stillmotion.encoders.loading import load_comparable as load_comparable
    from stillmotion.encoders.loading import parse_spec as parse_spec
    from stillmotion.encoders.spec import EncoderKind as EncoderKind
    from stillmotion.encoders.spec import EncoderSpec as EncoderSpec
    from stillmotion.utils.option_types import FeatureKind as FeatureKind

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "embedding": ("Embedding", "Embeddings"),
        "embedding_export": ("export_embeddings",),
        "encoder": ("Encoder", "EncoderOrigin"),
        "feature_cache": ("load_or_extract_features",),
        "feature_extraction": (
            "FEATURE_KINDS",
            "ClipViews",
            "FeatureKind",
            "Features",
            "LoaderConfig",
            "extract_features",
            "resolve_num_clips",
        ),
        "loading": ("ENCODER_KINDS", "canonical_spec", "default_encoder_spec", "load", "load_comparable", "parse_spec"),
        "spec": ("EncoderKind", "EncoderSpec"),
    },
)
