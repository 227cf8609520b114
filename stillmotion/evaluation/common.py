"""Shared parts of the protocols: names and feature tables of several encoders, chance and majority accuracy."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import (
    DEFAULT_NUM_CLIPS,
    ExtractionJob,
    FeatureTable,
    cached_extraction_job,
    check_cache_dir,
    load_or_extract_features,
)
from stillmotion.encoders.feature_extraction import ClipViews, resolve_num_clips
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.utils.files import check_writable
from stillmotion.utils.formatting import printable_name

NUM_LISTED_VIDEOS = 3  # videos named in a line of text


def chance_accuracy(train_y: np.ndarray) -> float:
    """Return the accuracy of guessing among the training classes; labels of -1 are unknown."""
    return 1 / len(np.unique(train_y[train_y >= 0]))


def majority_accuracy(train_y: np.ndarray, test_y: np.ndarray) -> float:
    """Return the accuracy of always predicting the most frequent training class.

    Args:
        train_y: Training labels, (N,); -1 is unknown.
        test_y: Test labels, (M,); -1 is unknown.

    Returns:
        The accuracy on the known test labels.
    """
    values, counts = np.unique(train_y[train_y >= 0], return_counts=True)
    return float((test_y[test_y >= 0] == values[counts.argmax()]).mean())


class EncoderFeatures(NamedTuple):
    """Features of a data set by one of several encoders.

    Args:
        name: Short name of the encoder.
        encoder: Encoder.
        split: Videos and their train/test split, which is empty for videos without labels.
        table: Features with names and labels.
    """

    name: str
    encoder: Encoder
    split: TrainTestSplit
    table: FeatureTable


def load_feature_tables(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: RetrievalConfig | ClusteringConfig,
    *,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
) -> Iterator[EncoderFeatures]:
    """Load or extract the features of videos, with labels or without, for one encoder after the other.

    Args:
        encoders: Encoders.
        split_config: Videos; "synthetic" ones are those of each encoder's run.
        config: Number of clips, and folder of the features.
        output_dir: Folder of the report.
        loader: Batch size and number of decoding processes.

    Yields:
        The features of each encoder.

    Raises:
        StillmotionError: If a folder overlaps the inputs, or cannot be written to.
    """
    for job, split in prepare_feature_tables(encoders, split_config, config, output_dir=output_dir):
        table = load_or_extract_features(
            job.encoder, split.dataset, num_clips=config.num_clips, cache_dir=config.cache_dir, loader=loader
        )
        yield EncoderFeatures(job.name, job.encoder, split, table)


def prepare_feature_tables(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: RetrievalConfig | ClusteringConfig,
    *,
    output_dir: str | Path | None = None,
) -> Iterator[tuple[ExtractionJob, TrainTestSplit]]:
    """Check paths, open the videos for each encoder, and yield what `load_feature_tables` extracts, with the split.

    Args:
        encoders: Encoders.
        split_config: Videos; "synthetic" ones are those of each encoder's run.
        config: Number of clips, and folder of the features.
        output_dir: Folder of the report.

    Raises:
        StillmotionError: If a folder overlaps the inputs, or cannot be written to.
    """
    if output_dir is not None:
        check_dir_no_overlap(output_dir, collect_input_paths(split_config, encoders=encoders))
        check_writable(output_dir)
    for name, encoder in zip(encoder_names(encoders), encoders, strict=True):
        split = split_config.open(encoder.synthetic_config, require_labels=False)
        check_cache_dir(config.cache_dir, collect_input_paths(split_config, dataset=split.dataset, encoders=encoders))
        num_clips = resolve_num_clips(encoder, config.num_clips, default=DEFAULT_NUM_CLIPS)
        views = ClipViews(num_clips=num_clips, average_views=True)
        yield cached_extraction_job(name, encoder, split.dataset, views, config.cache_dir), split


def encoder_names(encoders: Sequence[Encoder]) -> list[str]:
    """Return a short name for each encoder: the last part of its spec, or the whole spec where two are alike.

    Args:
        encoders: Encoders.

    Returns:
        Different names.

    Raises:
        StillmotionError: If there is no encoder, or one is given twice.
    """
    if not encoders:
        raise StillmotionError("No encoder given. Name a run folder, a recipe or a model.")
    ends = [encoder.name for encoder in encoders]
    specs = [encoder.origin.spec or encoder.name for encoder in encoders]
    names = [end if ends.count(end) == 1 else spec for end, spec in zip(ends, specs, strict=True)]
    if len(set(names)) < len(names):
        raise StillmotionError(f"{max(names, key=names.count)} is given twice; name each encoder once.")
    return names


def file_name(name: str) -> str:
    """Return the printable file name of a video."""
    return printable_name(Path(name).name)
