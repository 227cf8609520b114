"""Search without an index: the videos of a folder that are most similar to a query video."""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.video.reader import FrameSubset, VideoReader, to_frame_indices
from stillmotion.encoders import Encoder, Features, extract_features, resolve_num_clips
from stillmotion.encoders.color_flow_encoder import motion_encoder
from stillmotion.encoders.feature_cache import DEFAULT_NUM_CLIPS, check_cache_dir, load_or_extract_features
from stillmotion.encoders.input_paths import collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.retrieval.motion_ranking import score_by_motion
from stillmotion.functional.knn import knn_search, l2_normalize
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.video_segments import time_range_to_frames
from stillmotion.utils.formatting import format_failed_videos

logger = logging.getLogger(__name__)


class VideoMatch(NamedTuple):
    """A video and the similarity of its embedding to that of the query."""

    path: str
    similarity: float


class _TrimmedVideo(PathDataset):
    """A data set of one video, cut to a time range."""

    def __init__(self, path: Path, start: float | None, end: float | None) -> None:
        super().__init__([path])
        self._time_range = start, end

    def open_video(self, i: int) -> VideoReader:
        video = super().open_video(i)
        if self._time_range == (None, None):
            return video
        first, last = time_range_to_frames(video, *self._time_range, name=self.name(i))
        return FrameSubset(video, to_frame_indices(video, np.arange(first, last)))


def search_folder(
    encoder: Encoder,
    query: str | Path,
    videos: VideoDataConfig,
    config: SearchConfig | None = None,
    *,
    loader: LoaderConfig | None = None,
) -> list[VideoMatch]:
    """Search a folder of videos without an index.

    Args:
        encoder: The encoder.
        query: Query video: a file or a folder of frames.
        videos: Videos to search.
        config: What to rank by, the query segment and the number of results.
        loader: How videos are decoded.

    Returns:
        The most similar videos, best first; the query itself is left out.
    """
    config = config or SearchConfig()
    motion_weight, mover = 1.0 if config.by == "motion" else config.motion_weight, motion_encoder(encoder)
    encoder = mover if motion_weight == 1 else encoder
    query_set = _TrimmedVideo(Path(query), config.start, config.end)
    query_set.open_video(0)  # an unreadable query is reported before the folder is embedded
    num_clips = resolve_num_clips(encoder, config.num_clips, default=DEFAULT_NUM_CLIPS)
    dataset = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_cache_dir(
        config.cache_dir, collect_input_paths(videos, dataset=dataset, encoders=[encoder], extra_paths=[query])
    )
    query_features = extract_features(encoder, query_set, num_clips=num_clips, average_views=True)
    table = load_or_extract_features(encoder, dataset, num_clips=num_clips, cache_dir=config.cache_dir, loader=loader)
    moving = query_features, table.features
    if motion_weight and mover is not encoder:
        moving = (
            extract_features(mover, query_set, num_clips=num_clips, average_views=True),
            load_or_extract_features(
                mover, dataset, num_clips=num_clips, cache_dir=config.cache_dir, loader=loader
            ).features,
        )
        if not np.array_equal(moving[1].index, table.features.index):
            raise StillmotionError(
                f"{videos.path}: some videos can be read only in part; search by appearance or motion"
            )
    for line in format_failed_videos(dict(table.features.failed)):
        logger.warning(line)
    same_video = [i for i, name in enumerate(table.video_names) if Path(name).resolve() == Path(query).resolve()]
    k = min(config.top_k + len(same_video), len(table.video_names))
    if motion_weight and moving[1].motion_field.shape[-1]:
        scores = motion_weight * _score_aligned(*moving)
        if motion_weight < 1:
            looks = (torch.from_numpy(l2_normalize(x.vectors("static"))) for x in (query_features, table.features))
            scores += (1 - motion_weight) * (next(looks) @ next(looks).mT)
        nearest: tuple[torch.Tensor, torch.Tensor] = scores.topk(k)
    else:
        query_vectors, vectors = (torch.from_numpy(_vectors(x, config)) for x in (query_features, table.features))
        nearest = knn_search(query_vectors, vectors, k=k)
    similarities, indices = (x[0].numpy() for x in nearest)
    matches = [
        VideoMatch(table.video_names[int(i)], float(similarity))
        for i, similarity in zip(indices, similarities, strict=True)
        if i not in same_video
    ]
    return matches[: config.top_k]


def _score_aligned(query: Features, features: Features) -> torch.Tensor:
    """Score all videos by motion under alignment, (1, n)."""
    fields = query.motion_field.mean(1), features.motion_field.mean(1)
    return score_by_motion(*fields, np.array([-1]), np.arange(len(fields[1])))


def _vectors(features: Features, config: SearchConfig) -> np.ndarray:
    """Return the vectors to compare; the cosine of joined vectors is the weighted sum of their cosines."""
    weight = config.motion_weight
    if weight is None:
        return features.vectors("static" if config.by == "appearance" else config.by or "whole")
    appearance, motion = (l2_normalize(features.vectors(kind)) for kind in ("static", "motion"))
    return np.concatenate([(1 - weight) ** 0.5 * appearance, weight**0.5 * motion], 1).astype(np.float32)
