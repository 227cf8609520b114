"""Clips of videos at several frame rates show the same times of a scene, in training and in evaluation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset
from support.numbered_videos import read_frame_numbers, write_numbered_video

from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.transforms.augment import EvalCrop
from stillmotion.data.transforms.sampling import read_clips, sample_random_clips, sample_uniform_clips
from stillmotion.data.video import open_video
from stillmotion.data.video.reader import ArrayReader, resample_fps

SECONDS = 4
CLIP = {"num_frames": 8, "stride": 8}  # 56 / 30 of a second at 30 frames a second


def scene(fps: float) -> ArrayReader:
    """Return a video whose pixels are the time since the first frame in sixtieths of a second."""
    times = np.arange(round(SECONDS * fps)) * 60 / fps
    return ArrayReader(np.broadcast_to(times.round().astype(np.uint8)[:, None, None, None], (len(times), 4, 4, 3)), fps)


def scenes(*rates: float) -> MemoryDataset:
    return MemoryDataset({f"{rate} frames a second": scene(rate) for rate in rates})


def moments(pixels: np.ndarray) -> np.ndarray:
    return pixels[..., 0, 0, 0].astype(int)


def clip_times(fps: float, *, random: bool) -> np.ndarray:
    video = resample_fps(scene(fps), 30)
    options = {"rng": np.random.default_rng(3)} if random else {}
    sample = sample_random_clips if random else sample_uniform_clips
    return moments(read_clips(video, sample(len(video), **CLIP, num_clips=5, **options)))


@pytest.mark.parametrize("random", [False, True])
def test_a_scene_shows_the_same_moments_whatever_rate_it_was_filmed_at(random: bool) -> None:
    expected = clip_times(30, random=random)
    for fps in (12, 15, 24, 25, 29.97, 50, 60):
        # The nearest frame lies at most half a step of the slower video away, and times are rounded to a sixtieth.
        assert abs(clip_times(fps, random=random) - expected).max() <= 30 / min(fps, 30) + 1


def test_twice_and_half_the_rate_have_twice_and_half_the_stride() -> None:
    for fps, stride in ((60, 16), (30, 8), (15, 4)):
        video, original = resample_fps(scene(fps), 30), scene(fps)
        timed = read_clips(
            video, sample_uniform_clips(len(video), **CLIP, num_clips=1) // 2 * 2
        )  # even: all three have them
        start = moments(timed)[0, 0] * fps // 60
        assert np.array_equal(timed[0], original.get_frames(range(start, start + 8 * stride, stride)))


def test_without_a_rate_and_at_its_own_a_video_is_left_as_it_is() -> None:
    video = scene(25)
    assert resample_fps(video, 0) is video
    assert resample_fps(video, 25) is video
    assert len(resample_fps(ArrayReader(np.zeros((1, 4, 4, 3), np.uint8), 60), 1)) == 1


def test_training_and_evaluation_count_at_the_same_rate() -> None:
    rates = (15, 30, 60)

    def times(frames: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
        return torch.from_numpy(moments(frames))

    train = TrainClipDataset(scenes(*rates), **CLIP, num_clips=2, augment=times, fps=30)
    rngs = [np.random.default_rng(1) for _ in rates]
    slow, normal, fast = (train.load_item(i, rng)["clips"] for i, rng in enumerate(rngs))
    assert torch.equal(fast, normal)
    assert (slow - normal).abs().max() <= 2
    unresampled = replace(train, fps=0.0).load_item(0, np.random.default_rng(1))["clips"]
    assert (unresampled.diff() == 32).all()

    crop = EvalCrop(4, 4, 1, (0.0,) * 3, (1.0,) * 3)
    evaluation = EvalClipDataset(scenes(*rates), **CLIP, num_clips=3, crop=crop, fps=30)
    slow, normal, fast = (evaluation[i]["clips"] * 255 for i in range(3))
    torch.testing.assert_close(fast, normal)
    assert (slow - normal).abs().max() <= 2 + 1e-3


def test_frames_of_an_uneven_video_are_those_at_the_times_of_the_rate(tmp_path) -> None:
    times = [0, 1, 2, 3, 4, 5, 10, 15, 20, 25, 30, 35]  # in thirtieths of a second: first fast, then slow
    file = write_numbered_video(tmp_path / "uneven.mp4", num_frames=len(times), rate=30, times=times)
    timed = resample_fps(open_video(file), 6)
    times_seen = np.array(times)[read_frame_numbers(timed.get_frames(range(len(timed))))]
    assert len(times_seen) == 8  # from 0 to 35 thirtieths, every fifth
    assert abs(times_seen - 5 * np.arange(8)).max() <= 3
