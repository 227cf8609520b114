"""Which frames make a clip, and reading several clips of a video at once."""

from collections.abc import Iterable

import numpy as np

from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.errors import StillmotionError, VideoError


def sample_random_clips(
    video_length: int, *, num_frames: int, stride: int, num_clips: int, rng: np.random.Generator
) -> np.ndarray:
    """Frame numbers (clips, frames) of clips that start independently and uniformly.

    video_length: frames of the video. One shorter than a clip starts at 0 and repeats its last frame, as SlowFast does.
    num_frames, stride: a clip is `num_frames` frames, each `stride` after the one before; 0 takes one of each of as many equal
        parts of the video.
    """
    if stride == 0:
        return _indices_per_part(rng.random(num_clips), video_length, num_frames)
    last = _last_clip_start(video_length, num_frames, stride, num_clips)
    return _clip_indices(rng.integers(0, last + 1, size=num_clips), video_length, num_frames, stride)


def sample_uniform_clips(video_length: int, *, num_frames: int, stride: int, num_clips: int) -> np.ndarray:
    """Frame numbers (clips, frames) of clips spread evenly from the first frame to the last; one is the centre.

    stride: as in `random_clips`; of 0, clips take turns with the frames of each part.
    """
    if stride == 0:
        return _indices_per_part((np.arange(num_clips) + 0.5) / num_clips, video_length, num_frames)
    last = _last_clip_start(video_length, num_frames, stride, num_clips)
    starts = np.array([last / 2]) if num_clips == 1 else np.linspace(0, last, num_clips)
    return _clip_indices(np.floor(starts + 0.5).astype(np.int64), video_length, num_frames, stride)


def read_clips(video: VideoReader, steps: np.ndarray) -> np.ndarray:
    """The frames at (K, T) steps in time, uint8 (K, T, H, W, 3); a frame that several clips share is decoded once."""
    numbers, places = np.unique(to_frame_indices(video, steps), return_inverse=True)
    return video.get_frames(numbers.tolist())[places.reshape(steps.shape)]


def is_too_short(video_length: int, *, num_frames: int, stride: int) -> bool:
    """Whether clips of a video mostly repeat its last frame."""
    return video_length < num_frames or 2 * video_length < (num_frames - 1) * stride + 1


def _clip_indices(starts: np.ndarray, length: int, frames: int, stride: int) -> np.ndarray:
    return np.minimum(starts[:, None] + stride * np.arange(frames), length - 1)


def _indices_per_part(places: np.ndarray, length: int, frames: int) -> np.ndarray:
    """The frames (clips, frames) at these places, from 0 to 1, of equal parts of the video."""
    _last_clip_start(length, frames, 1, len(places))
    return np.floor((np.arange(frames) + places[:, None]) * length / frames).astype(np.int64)


def _last_clip_start(length: int, frames: int, stride: int, clips: int) -> int:
    settings: Iterable[tuple[str, int]] = {
        "length": length,
        "frames": frames,
        "stride": stride,
        "clips": clips,
    }.items()
    for name, value in settings:
        if value < 1:
            raise StillmotionError(f"{name} is {value}; a clip needs at least 1")
    return max(length - 1 - (frames - 1) * stride, 0)


def sample_frame_pair(video_length: int, *, gap: float, rng: np.random.Generator) -> np.ndarray:
    """Numbers (1, 2) of two frames that lie `gap` of the length apart, at least one frame."""
    if not 0 < gap < 1:
        raise StillmotionError(f"gap is {gap}; it is a share of the video's length, such as 0.15")
    if video_length < 2:
        raise VideoError(f"a video of {video_length} frame has no pair of frames")
    step = min(max(1, round(gap * video_length)), video_length - 1)
    first = int(rng.integers(0, video_length - step))
    return np.array([[first, first + step]])


def symmetric_frame_indices(video_length: int, num_frames: int) -> np.ndarray:
    """The middle frames of so many equal parts of a video, as numbers that lie alike from both ends.

    Parts that differed would tell the direction by themselves, and so would a first frame that is always a key frame.
    """
    middles = (np.arange((num_frames + 1) // 2) + 0.5) * video_length / num_frames - 0.5
    first = np.floor(middles + 0.5).astype(np.int64)
    return np.concatenate([first, (video_length - 1 - first[::-1])[num_frames % 2 :]])
