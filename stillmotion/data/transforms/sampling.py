"""Which frames make a clip; read clips."""

import numpy as np

from stillmotion.data.video.input_limits import check_clip_size
from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.errors import StillmotionError, VideoError


def sample_random_clips(
    video_length: int, *, num_frames: int, stride: int, num_clips: int, rng: np.random.Generator
) -> np.ndarray:
    """Sample clips with independent, uniform start frames.

    A video shorter than a clip starts at 0 and repeats its last frame, as in SlowFast.

    Args:
        video_length: Number of frames of the video.
        num_frames: Number of frames of a clip.
        stride: Distance between frames of a clip; 0 samples one frame of each of `num_frames` equal parts of the video.
        num_clips: Number of clips.
        rng: Random generator.

    Returns:
        Frame indices (num_clips, num_frames).
    """
    if stride == 0:
        return _indices_per_part(rng.random(num_clips), video_length, num_frames)
    last = _last_clip_start(video_length, num_frames, stride, num_clips)
    return _clip_indices(rng.integers(0, last + 1, size=num_clips), video_length, num_frames, stride)


def sample_uniform_clips(video_length: int, *, num_frames: int, stride: int, num_clips: int) -> np.ndarray:
    """Space clips evenly from the first frame to the last; a single clip is in the center.

    Args:
        video_length: Number of frames of the video.
        num_frames: Number of frames of a clip.
        stride: Distance between frames of a clip; with 0, the clips interleave frames of `num_frames` equal parts.
        num_clips: Number of clips.

    Returns:
        Frame indices (num_clips, num_frames).
    """
    if stride == 0:
        return _indices_per_part((np.arange(num_clips) + 0.5) / num_clips, video_length, num_frames)
    last = _last_clip_start(video_length, num_frames, stride, num_clips)
    starts = np.array([last / 2]) if num_clips == 1 else np.linspace(0, last, num_clips)
    return _clip_indices(np.floor(starts + 0.5).astype(np.int64), video_length, num_frames, stride)


def read_clips(video: VideoReader, steps: np.ndarray) -> np.ndarray:
    """Read clips of a video; a frame that several clips share is decoded once.

    Args:
        video: The video.
        steps: Steps of the constant-rate timeline, (K, T).

    Returns:
        The clips, uint8 (K, T, H, W, 3).

    Raises:
        VideoError: If a frame cannot be decoded, or the clips take too much memory.
    """
    indices, inverse = np.unique(to_frame_indices(video, steps), return_inverse=True)
    frames = video.get_frames(indices.tolist())
    check_clip_size(video.name, steps.size, *frames.shape[1:3])  # the frames of a short video are repeated
    return frames[inverse.reshape(steps.shape)]


def is_too_short(video_length: int, *, num_frames: int, stride: int) -> bool:
    """Return whether the clips of a video mostly repeat its last frame.

    Args:
        video_length: Number of frames of the video.
        num_frames: Number of frames of a clip.
        stride: Distance between frames of a clip.
    """
    return video_length < num_frames or 2 * video_length < (num_frames - 1) * stride + 1


def _clip_indices(starts: np.ndarray, length: int, frames: int, stride: int) -> np.ndarray:
    return np.minimum(starts[:, None] + stride * np.arange(frames), length - 1)


def _indices_per_part(positions: np.ndarray, length: int, frames: int) -> np.ndarray:
    """Frame indices (clips, frames) at relative positions, from 0 to 1, of equal parts of the video."""
    _last_clip_start(length, frames, 1, len(positions))
    return np.floor((np.arange(frames) + positions[:, None]) * length / frames).astype(np.int64)


def _last_clip_start(length: int, frames: int, stride: int, clips: int) -> int:
    settings = {"video_length": length, "num_frames": frames, "stride": stride, "num_clips": clips}
    for name, value in settings.items():
        if value < 1:
            raise StillmotionError(f"{name} is {value}; must be at least 1")
    return max(length - 1 - (frames - 1) * stride, 0)


def sample_frame_pair(video_length: int, *, gap: float, rng: np.random.Generator) -> np.ndarray:
    """Sample two frames at a fixed distance, which is at least one frame.

    Args:
        video_length: Number of frames of the video.
        gap: Distance as a fraction of the length, between 0 and 1.
        rng: Random generator.

    Returns:
        Frame indices (1, 2).

    Raises:
        VideoError: If the video has one frame only.
    """
    if not 0 < gap < 1:
        raise StillmotionError(f"gap is {gap}; must be a fraction of the video length between 0 and 1, e.g. 0.15")
    if video_length < 2:
        raise VideoError(f"a video of {video_length} frame has no pair of frames")
    step = min(max(1, round(gap * video_length)), video_length - 1)
    first = int(rng.integers(0, video_length - step))
    return np.array([[first, first + step]])


def centered_clip_indices(centers: np.ndarray, video_length: int, *, num_frames: int, stride: int) -> np.ndarray:
    """Frame indices of clips around given frames; the first and the last frame of a video are repeated.

    Args:
        centers: Frame in the middle of each clip, (n,).
        video_length: Number of frames of the video.
        num_frames: Number of frames of a clip.
        stride: Distance between frames of a clip; 0, which samples the whole video elsewhere, counts as 1.

    Returns:
        Frame indices (n, num_frames).
    """
    offsets = max(stride, 1) * (np.arange(num_frames) - num_frames // 2)
    return np.clip(centers[:, None] + offsets, 0, video_length - 1)


def symmetric_frame_indices(video_length: int, num_frames: int) -> np.ndarray:
    """Indices of the middle frames of equal parts of a video, symmetric in time.

    Asymmetric parts would reveal the direction of time, and so would a first frame that is always a codec key frame.

    Args:
        video_length: Number of frames of the video.
        num_frames: Number of parts.

    Returns:
        Frame indices (num_frames,).
    """
    middles = (np.arange((num_frames + 1) // 2) + 0.5) * video_length / num_frames - 0.5
    first = np.floor(middles + 0.5).astype(np.int64)
    return np.concatenate([first, (video_length - 1 - first[::-1])[num_frames % 2 :]])
