"""The rotation in a video's metadata is applied, and clips are sampled by time."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.data.video import open_video
from stillmotion.data.video.reader import to_frame_indices

IDENTITY = b"".join(n.to_bytes(4, "big") for n in (65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30))


def write(path: Path, pictures: np.ndarray, times: list[int]) -> Path:
    """Write a video of these pictures at these times in milliseconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
        stream.codec_context.time_base = Fraction(1, 1000)
        for picture, time in zip(pictures, times, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_rotation_in_the_metadata_is_applied(quarters: int, tmp_path: Path) -> None:
    pictures = np.zeros((4, 32, 64, 3), np.uint8)
    pictures[:, :8, :8] = 255  # one white corner
    unrotated = open_video(write(tmp_path / "plain.mp4", pictures, [0, 40, 80, 120])).get_frames([1])[0]
    cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters]
    matrix = [n & 0xFFFFFFFF for n in (cos << 16, sin << 16, 0, -sin << 16, cos << 16, 0, 0, 0, 1 << 30)]
    rotated_file = tmp_path / "turned.mp4"
    content = (tmp_path / "plain.mp4").read_bytes()
    track = content.index(IDENTITY, content.index(b"tkhd"))
    rotated_file.write_bytes(content[:track] + b"".join(n.to_bytes(4, "big") for n in matrix) + content[track + 36 :])
    video = open_video(rotated_file)
    expected = np.rot90(unrotated, -quarters)  # a player shows the picture turned clockwise
    np.testing.assert_array_equal(video.get_frames([1])[0], expected)
    np.testing.assert_array_equal(list(video.iter_frames([0, 1]))[1], expected)


def test_clips_of_a_variable_rate_are_taken_by_time(tmp_path: Path) -> None:
    # Ten frames in the first 0.1 s and ten in the next 2 s; brightness is the time.
    times = [*range(0, 100, 10), *range(100, 2100, 200)]
    levels = np.array(times) * 240 // times[-1]
    pictures = np.broadcast_to(levels[:, None, None, None], (20, 32, 32, 3)).astype(np.uint8)
    video = open_video(write(tmp_path / "uneven.mp4", pictures, times))
    steps = sample_uniform_clips(len(video), num_frames=5, stride=4, num_clips=1)
    brightness = read_clips(video, steps)[0].mean((1, 2, 3))
    even = np.linspace(0, times[-1], len(video))[steps[0]] * 240 / times[-1]
    assert np.abs(brightness - even).max() < 16  # half of the longest gap is 12.6; the rest is compression
    assert np.abs(levels[steps[0]] - even).max() > 60  # sampled by frame number, they would be far off


def test_a_constant_rate_is_taken_by_number(tmp_path: Path) -> None:
    video = open_video(write(tmp_path / "even.mp4", np.zeros((9, 32, 32, 3), np.uint8), list(range(0, 360, 40))))
    np.testing.assert_array_equal(to_frame_indices(video, np.arange(9)), np.arange(9))
