"""Batches of clips: the same ones in the same order whatever the workers, the ranks or the step one starts at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.data.transforms.sampling import is_too_short, read_clips, sample_random_clips, sample_uniform_clips
from stillmotion.data.video.reader import resample_fps
from stillmotion.errors import VideoError, raise_if_none_readable

_REPLACEMENT_STREAM = 1  # apart from other draws with the same numbers


@dataclass(frozen=True)
class ClipDataset:
    """Random augmented clips: item (epoch, index) → clips (V, 3, T, S, S), index, broken, short.

    videos: where they come from. frames (T), stride, clips (V): what is taken of each. fps: as for `at_rate`.
    augment: frames uint8 (T, H, W, 3), rng → float (3, T, S, S).
    seed: with epoch and index it fixes everything that is drawn.
    strict: an unreadable video raises. Otherwise one by chance stands in for it, and `broken` names it.
    augment_in_worker: False leaves clips as uint8, with `changes` (V, 11), which `Augment.finish` makes the rest of on a device.
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
        broken: FailedVideos = []
        for used in self._replacement_order(epoch, index):
            rng = np.random.default_rng((self.seed, epoch, used))
            try:
                return self.load_item(used, rng) | {"index": used, "failed": broken}
            except VideoError as error:
                if self.strict:
                    raise
                broken.append((self.videos.name(used), str(error)))
        raise_if_none_readable(broken, len(self))
        raise AssertionError("unreachable")

    def _replacement_order(self, epoch: int, index: int) -> Iterator[int]:
        """The video itself and, if it is not to be, others by chance: neighbours are often broken together."""
        yield index
        order = np.random.default_rng((self.seed, epoch, index, _REPLACEMENT_STREAM)).permutation(len(self))
        yield from (int(other) for other in order if other != index)

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        """What is drawn of a video, or VideoError."""
        video = resample_fps(self.videos.open_video(index), self.fps)
        views = read_clips(video, self.sample_indices(len(video), rng))
        short = is_too_short(len(video), num_frames=self.num_frames, stride=self.stride)
        if self.augment_in_worker or not isinstance(self.augment, ClipAugmentation):
            return {"clips": torch.stack([self.augment(view, rng) for view in views]), "too_short": short}
        clips, changes = zip(*(self.augment.crop_only(view, rng) for view in views), strict=True)
        return {"clips": torch.stack(clips), "augment_params": np.stack(changes), "too_short": short}

    def sample_indices(self, video_length: int, rng: np.random.Generator) -> np.ndarray:
        """The frames (V, T) that are taken of a video of this length."""
        return sample_random_clips(
            video_length, num_frames=self.num_frames, stride=self.stride, num_clips=self.num_clips, rng=rng
        )


@dataclass(frozen=True)
class EvalClipDataset:
    """Evenly spaced clips for evaluation: index → clips (K·crops, 3, T, S, S), index, broken, short.

    num_clips (K): per video. crop: how a clip is cut and normalised. fps: as for `at_rate`.
    An unreadable video has clips None, which `eval_loader` leaves out of its batches.
    """

    videos: VideoDataset
    num_frames: int
    stride: int
    num_clips: int
    crop: EvalCrop
    strict: bool = False
    fps: float = 0.0

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> Batch:
        try:
            return self.load_item(index) | {"index": index, "failed": []}
        except VideoError as error:
            if self.strict:
                raise
            return {"clips": None, "index": index, "failed": [(self.videos.name(index), str(error))]}

    def load_item(self, index: int) -> Batch:
        """What is taken of a video, or VideoError."""
        video = resample_fps(self.videos.open_video(index), self.fps)
        numbers = sample_uniform_clips(
            len(video), num_frames=self.num_frames, stride=self.stride, num_clips=self.num_clips
        )
        short = is_too_short(len(video), num_frames=self.num_frames, stride=self.stride)
        return {"clips": torch.cat([self.crop(view) for view in read_clips(video, numbers)]), "too_short": short}
