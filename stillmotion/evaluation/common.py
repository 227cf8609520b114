"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoSource
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import Encoder, ProgressCallback, resolve_num_clips
from stillmotion.encoders.feature_cache import (
    DEFAULT_NUM_CLIPS,
    ExtractionJob,
    FeatureTable,
    cached_extraction_job,
    check_cache_dir,
    load_or_extract_features,
)
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import check_writable
from stillmotion.utils.formatting import printable_name


def majority_accuracy(train_y: np.ndarray, test_y: np.ndarray) -> float:
    """The accuracy of always answering the training half's commonest class."""
    values, counts = np.unique(train_y[train_y >= 0], return_counts=True)
    return float((test_y[test_y >= 0] == values[counts.argmax()]).mean())


def load_feature_tables(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    num_clips: int | None,
    cache_dir: str | Path | None,
    loader: LoaderConfig | None,
    say: Callable[[str], object],
    progress: ProgressCallback | None,
) -> Iterator[tuple[str, Encoder, TrainTestSplit, FeatureTable]]:
    """Encoders one after the other: what each is called, the videos, and its features as `cached_features` has them."""
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        parted = split_config.open(encoder.synthetic_config)
        check_cache_dir(cache_dir, collect_input_paths(split_config, dataset=parted.dataset, encoders=encoders))
        found = load_or_extract_features(
            encoder, parted.dataset, num_clips=num_clips, cache_dir=cache_dir, loader=loader
        )
        yield title, encoder, parted, found


def prepare_feature_tables(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    num_clips: int | None,
    cache_dir: str | Path | None,
    output_dir: str | Path | None = None,
) -> Iterator[ExtractionJob]:
    """Check paths, open the videos, and yield what `load_feature_tables` extracts, with labels or without.

    Args:
        encoders: Encoders.
        split_config: Videos; "synthetic" ones are those of each encoder's run.
        num_clips: Evenly spaced clips per video.
        cache_dir: Folder of the features; None is that of each encoder's run.
        output_dir: Folder of the report.

    Raises:
        StillmotionError: If a folder overlaps the inputs, or cannot be written to.
    """
    if output_dir is not None:
        check_dir_no_overlap(output_dir, collect_input_paths(split_config, encoders=encoders))
        check_writable(output_dir)
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        videos: VideoDataset
        try:
            videos = split_config.open(encoder.synthetic_config).dataset
        except MissingLabelsError:
            videos = split_config.with_split().open()
        check_cache_dir(cache_dir, collect_input_paths(split_config, dataset=videos, encoders=encoders))
        num_views = resolve_num_clips(encoder, num_clips, default=DEFAULT_NUM_CLIPS)
        yield cached_extraction_job(
            title, encoder, videos, ClipViews(num_clips=num_views, average_views=True), cache_dir
        )


def encoder_names(encoders: Sequence[Encoder]) -> list[str]:
    """A short name for each encoder: the end of its text, or the whole where two ends are alike."""
    if not encoders:
        raise StillmotionError("no encoder given; name a run folder or a recipe")
    ends = [encoder.name for encoder in encoders]
    texts = [encoder.origin.spec or encoder.name for encoder in encoders]
    names = [end if ends.count(end) == 1 else text for end, text in zip(ends, texts, strict=True)]
    if len(set(names)) < len(names):
        raise StillmotionError(f"{max(names, key=names.count)} is given twice; name each encoder once")
    return names


NUM_LISTED_VIDEOS = 3  # nearest videos in a line for a terminal


def load_unlabeled_feature_tables(
    encoders: Sequence[Encoder],
    source: VideoSource,
    num_clips: int | None,
    cache_dir: str | Path | None,
    loader: LoaderConfig | None,
    say: Callable[[str], object],
    progress: ProgressCallback | None,
) -> Iterator[tuple[str, FeatureTable]]:
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        videos = source.with_split().open()
        check_cache_dir(cache_dir, collect_input_paths(source, dataset=videos, encoders=encoders))
        yield (
            title,
            load_or_extract_features(encoder, videos, num_clips=num_clips, cache_dir=cache_dir, loader=loader),
        )


def file_name(name: str) -> str:
    return printable_name(Path(name).name)
