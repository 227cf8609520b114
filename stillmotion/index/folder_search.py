"""`stillmotion search` without an index: the videos of a folder that are most alike to one video."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.video.reader import FrameSubset, VideoReader, to_frame_indices
from stillmotion.encoders import Encoder, Features, ProgressCallback, extract_features, resolve_num_clips
from stillmotion.encoders.feature_cache import DEFAULT_NUM_CLIPS, check_cache_dir, load_or_extract_features
from stillmotion.encoders.input_paths import collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.functional.knn import knn_search
from stillmotion.index.search_config import SearchConfig
from stillmotion.utils.formatting import format_failed_videos


class VideoMatch(NamedTuple):
    """A video and the similarity of its embedding to the query's."""

    path: str
    similarity: float


class _TrimmedVideo(PathDataset):
    """One video, from some second on up to another."""

    def __init__(self, path: Path, start: float | None, end: float | None) -> None:
        super().__init__([path])
        self._limits = start, end

    def open_video(self, i: int) -> VideoReader:
        video = super().open_video(i)
        if self._limits == (None, None):
            return video
        first, last = time_range_to_frames(video, *self._limits, name=self.name(i))
        return FrameSubset(video, to_frame_indices(video, np.arange(first, last)))


def time_range_to_frames(video: VideoReader, start: float | None, end: float | None, *, name: str) -> tuple[int, int]:
    """The first step of a video's mean rate from one second on, and that behind the last up to another.

    start, end: None is the video's own. name: what an error calls it.
    """
    lasts = len(video) / video.fps
    first, last = start or 0.0, lasts if end is None else end
    if not 0 <= first < min(last, lasts):
        raise StillmotionError(f"{name} lasts {lasts:.2f} s; {first:g} to {last:g} is no moment of it")
    begin = min(int(first * video.fps), len(video) - 1)
    return begin, max(begin + 1, min(round(last * video.fps), len(video)))


def search_folder(
    encoder: Encoder,
    query: str | Path,
    videos: VideoDataConfig,
    config: SearchConfig | None = None,
    *,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> list[VideoMatch]:
    """The videos most alike to the query, best first; the query itself, where it is among them, is left out.

    query: a video file or a folder of frames.
    say: told which videos could not be read, and of a damaged cache.
    """
    how = config or SearchConfig()
    asked = _TrimmedVideo(Path(query), how.start, how.end)
    asked.open_video(0)  # what is wrong with it is said before the library is embedded
    clips = resolve_num_clips(encoder, how.num_clips, default=DEFAULT_NUM_CLIPS)
    searched = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_cache_dir(
        how.cache_dir, collect_input_paths(videos, dataset=searched, encoders=[encoder], extra_paths=[query])
    )
    vector = _query_vectors(extract_features(encoder, asked, num_clips=clips, average_views=True), how)
    library = load_or_extract_features(
        encoder, searched, num_clips=clips, cache_dir=how.cache_dir, loader=loader
    )
    for line in format_failed_videos(dict(library.features.failed)):
        say(line)
    vectors = _query_vectors(library.features, how)
    itself = [i for i, name in enumerate(library.video_names) if Path(name).resolve() == Path(query).resolve()]
    k = min(how.top_k + len(itself), len(vectors))
    similarities, numbers = (x.numpy() for x in knn_search(torch.from_numpy(vector), torch.from_numpy(vectors), k=k))
    others = ~np.isin(numbers[0], itself)
    pairs = zip(numbers[0][others], similarities[0][others], strict=True)
    return [VideoMatch(library.video_names[int(number)], float(similarity)) for number, similarity in pairs][
        : how.top_k
    ]


def _query_vectors(features: Features, config: SearchConfig) -> np.ndarray:
    """What is compared of videos; the cosine of mixed vectors is the mixture of their cosines."""
    if config.motion_weight is None:
        return features.vectors("static" if config.by == "appearance" else config.by or "whole")
    looks, motions = (_l2_normalize(features.vectors(kind)) for kind in ("static", "motion"))
    return np.concatenate([(1 - config.motion_weight) ** 0.5 * looks, config.motion_weight**0.5 * motions], 1).astype(
        np.float32
    )


def _l2_normalize(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
