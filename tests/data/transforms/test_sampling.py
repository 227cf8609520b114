import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.data.transforms.sampling import (
    centered_clip_indices,
    read_clips,
    sample_random_clips,
    sample_uniform_clips,
)
from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import StillmotionError

SIZES = {
    "length": st.integers(1, 200),
    "frames": st.integers(1, 20),
    "stride": st.integers(1, 9),
    "clips": st.integers(1, 5),
}


@given(**SIZES, seed=st.integers(0, 2**32))
def test_clips_stay_inside_the_video_and_keep_their_stride(
    length: int, frames: int, stride: int, clips: int, seed: int
) -> None:
    random = sample_random_clips(
        length, num_frames=frames, stride=stride, num_clips=clips, rng=np.random.default_rng(seed)
    )
    even = sample_uniform_clips(length, num_frames=frames, stride=stride, num_clips=clips)
    for indices in (random, even):
        assert indices.shape == (clips, frames)
        assert indices.min() >= 0
        assert indices.max() < length
        steps = np.diff(indices, axis=1)
        fits = (frames - 1) * stride < length
        assert (steps == stride).all() if fits else ((steps >= 0) & (steps <= stride)).all()


def test_short_videos_repeat_their_last_frame() -> None:
    random = sample_random_clips(5, num_frames=4, stride=3, num_clips=2, rng=np.random.default_rng(0))
    assert random.tolist() == [[0, 3, 4, 4]] * 2


def test_starts_are_independent_and_reach_both_ends() -> None:
    starts = sample_random_clips(12, num_frames=4, stride=2, num_clips=2000, rng=np.random.default_rng(0))[:, 0]
    assert np.bincount(starts).min() > 200
    assert starts.max() == 5


def test_uniform_clips_run_from_the_first_frame_to_the_last_and_one_is_the_centre() -> None:
    assert sample_uniform_clips(101, num_frames=11, stride=1, num_clips=3)[:, 0].tolist() == [0, 45, 90]
    assert sample_uniform_clips(101, num_frames=11, stride=1, num_clips=1)[0, 5] == 50


def test_a_clip_has_its_center_in_its_middle_and_repeats_the_ends() -> None:
    clips = centered_clip_indices(np.array([50, 2, 99]), 100, num_frames=6, stride=2)
    assert clips.tolist() == [[44, 46, 48, 50, 52, 54], [0, 0, 0, 2, 4, 6], [93, 95, 97, 99, 99, 99]]
    assert centered_clip_indices(np.array([3]), 5, num_frames=1, stride=8).tolist() == [[3]]
    assert centered_clip_indices(np.array([3]), 5, num_frames=3, stride=0).tolist() == [[2, 3, 4]]


def test_overlapping_clips_read_each_frame_once() -> None:
    class Counting(ArrayReader):
        def get_frames(self, indices: list[int]) -> np.ndarray:
            requested.append(list(indices))
            return super().get_frames(indices)

    requested: list[list[int]] = []
    array = np.random.default_rng(0).integers(0, 255, (10, 4, 5, 3), dtype=np.uint8)
    indices = np.array([[0, 2, 4], [2, 4, 6], [9, 9, 0]])
    np.testing.assert_array_equal(read_clips(Counting(array), indices), array[indices])
    assert requested == [[0, 2, 4, 6, 9]]


def test_impossible_sizes_name_the_value() -> None:
    with pytest.raises(StillmotionError, match="stride is -1"):
        sample_uniform_clips(10, num_frames=2, stride=-1, num_clips=1)
    with pytest.raises(StillmotionError, match="frames is 0"):
        sample_uniform_clips(10, num_frames=0, stride=0, num_clips=1)


def test_without_a_stride_clips_are_spread_over_the_whole_video() -> None:
    assert sample_uniform_clips(32, num_frames=4, stride=0, num_clips=1).tolist() == [[4, 12, 20, 28]]
    assert sample_uniform_clips(32, num_frames=4, stride=0, num_clips=2).tolist() == [[2, 10, 18, 26], [6, 14, 22, 30]]
    assert sample_uniform_clips(2, num_frames=4, stride=0, num_clips=1).tolist() == [[0, 0, 1, 1]]
    random = sample_random_clips(32, num_frames=4, stride=0, num_clips=500, rng=np.random.default_rng(0))
    assert (random // 8 == np.arange(4)).all()
    assert (np.diff(random) == 8).all()
    assert set(random[:, 0]) == set(range(8))
