"""Data sets of clips that the loaders read: random, evenly spaced, and pairs of frames."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.data.transforms.sampling import (
    is_too_short,
    read_clips,
    sample_frame_pair,
    sample_random_clips,
    sample_uniform_clips,
)
from stillmotion.data.video.reader import resample_fps
from stillmotion.errors import VideoError, as_video_error, raise_if_none_readable

if TYPE_CHECKING:
    from stillmotion.data.loading.cached_tokens import TokenCache

_MAX_UNEXPECTED = 20  # videos in a row that raise something else than VideoError, say because the augmentation fails
_REPLACEMENT_STREAM = 1  # separates the random order of replacements from that of the clips


@dataclass(frozen=True)
class TrainClipDataset:
    """Random augmented clips of each video.

    The item of an index, or of (epoch, index), is a dictionary with clips (V, 3, T, S, S), index, failed and too_short.

    Args:
        videos: The videos.
        num_frames: Number of frames of a clip, T.
        stride: Distance between frames of a clip; 0 spreads them over the whole video.
        num_clips: Number of clips of each video, V.
        augment: Augmentation: frames uint8 (T, H, W, 3) and a random generator to float (3, T, S, S).
        seed: Seed; with epoch and index it determines the item.
        strict: Raise on an unreadable video; otherwise use a random other video and list the failed one.
        fps: Frame rate to which videos are resampled; 0 uses that of each video.
        augment_in_worker: False returns uint8 crops and augment_params (V, 11), for augmentation on the device.
    """

    videos: VideoDataset
    num_frames: int
    stride: int
    num_clips: int
    augment: ClipAugmentation | Callable[[np.ndarray, np.random.Generator], torch.Tensor]
    seed: int = 0
    strict: bool = False
    fps: float = 0.0
    augment_in_worker: bool = True

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        failed: FailedVideos = []
        unexpected = 0
        for candidate in self._replacement_order(epoch, index):
            rng = np.random.default_rng((self.seed, epoch, candidate))
            name = self.videos.name(candidate)
            try:
                with as_video_error(name):
                    return self.load_item(candidate, rng) | {"index": candidate, "failed": failed}
            except VideoError as error:
                if self.strict:
                    raise
                failed.append((name, str(error)))
                unexpected += error.__cause__ is not None
                if error.__cause__ is not None and unexpected == len(failed) == _MAX_UNEXPECTED:
                    raise error.__cause__ from None  # not the fault of one video; do not try all of them
        raise_if_none_readable(failed, len(self))
        raise AssertionError("unreachable")

    def _replacement_order(self, epoch: int, index: int) -> Iterator[int]:
        """The video itself, then others in random order, because neighbors often fail together."""
        yield index
        order = np.random.default_rng((self.seed, epoch, index, _REPLACEMENT_STREAM)).permutation(len(self))
        yield from (int(other) for other in order if other != index)

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        """Load the clips of a video.

        Args:
            index: Index of the video.
            rng: Random generator.

        Raises:
            VideoError: If the video cannot be read.
        """
        video = resample_fps(self.videos.open_video(index), self.fps)
        views = read_clips(video, self.sample_indices(len(video), rng))
        too_short = is_too_short(len(video), num_frames=self.num_frames, stride=self.stride)
        if self.augment_in_worker or not isinstance(self.augment, ClipAugmentation):
            return {"clips": torch.stack([self.augment(view, rng) for view in views]), "too_short": too_short}
        clips, params = zip(*(self.augment.crop_only(view, rng) for view in views), strict=True)
        return {"clips": torch.stack(clips), "augment_params": np.stack(params), "too_short": too_short}

    def sample_indices(self, video_length: int, rng: np.random.Generator) -> np.ndarray:
        """Sample the frame indices (V, T) of the clips of a video.

        Args:
            video_length: Number of frames of the video.
            rng: Random generator.
        """
        return sample_random_clips(
            video_length, num_frames=self.num_frames, stride=self.stride, num_clips=self.num_clips, rng=rng
        )


@dataclass(frozen=True)
class FramePairDataset(TrainClipDataset):
    """Two frames of each video, at a fixed distance: item (epoch, index) → clips (1, 3, 2, S, S), index, failed.

    Args:
        gap: Distance of the frames as a fraction of the video length.
        pairs_per_video: Number of different pairs of a video, which epochs use in turn; 0 samples a new pair each time.
        token_cache: Cache of tokens; pairs whose tokens are cached are not read, and their clips are zeros.
    """

    gap: float = 0.15
    pairs_per_video: int = 0
    token_cache: "TokenCache | None" = None

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        if self.pairs_per_video:
            epoch %= self.pairs_per_video
        if self.token_cache is not None and self.token_cache.has(index, epoch):
            assert isinstance(self.augment, ClipAugmentation)
            size = self.augment.size
            return {"clips": torch.zeros(1, 3, 2, size, size), "index": index, "failed": []}
        return super().__getitem__((epoch, index))

    def sample_indices(self, video_length: int, rng: np.random.Generator) -> np.ndarray:
        return sample_frame_pair(video_length, gap=self.gap, rng=rng)


@dataclass(frozen=True)
class EvalClipDataset:
    """Evenly spaced clips of each video, for evaluation.

    The item of an index is a dictionary with clips (K·crops, 3, T, S, S), index, failed and too_short. The clips of an
    unreadable video are None, and `iter_eval_batches` leaves it out.

    Args:
        videos: The videos.
        num_frames: Number of frames of a clip, T.
        stride: Distance between frames of a clip; 0 spreads them over the whole video.
        num_clips: Number of clips of each video, K.
        crop: Crop and normalization of a clip.
        fps: Frame rate to which videos are resampled; 0 uses that of each video.
    """

    videos: VideoDataset
    num_frames: int
    stride: int
    num_clips: int
    crop: EvalCrop
    fps: float = 0.0

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> Batch:
        name = self.videos.name(index)
        try:
            with as_video_error(name):
                return self.load_item(index) | {"index": index, "failed": []}
        except VideoError as error:
            return {"clips": None, "index": index, "failed": [(name, str(error))]}

    def load_item(self, index: int) -> Batch:
        """Load the clips of a video; raises VideoError if it cannot be read."""
        video = resample_fps(self.videos.open_video(index), self.fps)
        indices = sample_uniform_clips(
            len(video), num_frames=self.num_frames, stride=self.stride, num_clips=self.num_clips
        )
        too_short = is_too_short(len(video), num_frames=self.num_frames, stride=self.stride)
        return {"clips": torch.cat([self.crop(view) for view in read_clips(video, indices)]), "too_short": too_short}
