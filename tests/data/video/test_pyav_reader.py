import pickle
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from support.numbered_videos import (
    VIDEO_KINDS,
    WriteVideo,
    numbered_frame,
    read_frame_numbers,
    write_unreadable_files,
)

from stillmotion.data.video import open_video
from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import VideoError


def sequential(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.mark.parametrize("kind", VIDEO_KINDS)
def test_frames_at_any_indices_are_those_of_a_sequential_decode(write_video: WriteVideo, kind: str) -> None:
    path = write_video(**VIDEO_KINDS[kind])
    expected = sequential(path)
    video = open_video(path)
    assert len(video) == len(expected)
    rng = np.random.default_rng(0)
    for _ in range(8):
        indices = rng.integers(0, len(expected), size=rng.integers(1, 9)).tolist()
        np.testing.assert_array_equal(video.get_frames(indices), expected[indices])
    for index in range(len(expected)):
        np.testing.assert_array_equal(video.get_frames([index])[0], expected[index])


@pytest.mark.parametrize("kind", ["mp4 with B-frames", "mkv with B-frames", "avi", "avi with B-frames"])
def test_index_is_the_number_of_the_frame_that_was_written(write_video: WriteVideo, kind: str) -> None:
    video = open_video(write_video(**VIDEO_KINDS[kind]))
    expected = [29, 3, 3, 12, 0, 17]
    assert read_frame_numbers(video.get_frames(expected)) == expected


def test_opening_demuxes_but_does_not_decode(write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(b_frames=2)
    monkeypatch.setattr("stillmotion.data.video.pyav_reader._to_rgb", lambda *_: pytest.fail("converted a frame"))
    video = open_video(path)
    assert (len(video), video.fps) == (30, 25.0)


def test_only_wanted_frames_are_converted(write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    from stillmotion.data.video import pyav_reader as module

    converted = []
    convert = module._to_rgb
    monkeypatch.setattr(module, "_to_rgb", lambda *args: converted.append(1) or convert(*args))
    open_video(write_video(b_frames=2)).get_frames([5, 20, 5])
    assert len(converted) == 2


def test_variable_frame_rate_counts_frames_and_not_time(write_video: WriteVideo) -> None:
    times = np.cumsum(np.tile([1, 1, 7], 10)).tolist()
    video = open_video(write_video(times=times, b_frames=2))
    assert len(video) == 30
    assert read_frame_numbers(video.get_frames([0, 11, 29])) == [0, 11, 29]


def test_a_video_that_was_cut_without_encoding_starts_with_the_frames_before_its_first_key_frame(
    write_video: WriteVideo,
) -> None:
    path = write_video("whole.mp4", b_frames=2)
    with av.open(str(path)) as source, av.open(str(path.with_name("cut.mp4")), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                shift = round(5 / 25 / packet.time_base)  # frames before time 0 are decoded but not returned
                packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, stream
                target.mux(packet)
    video = open_video(path.with_name("cut.mp4"))
    assert len(video) == 25
    assert read_frame_numbers(video.get_frames(range(25))) == list(range(5, 30))


def test_odd_sizes_are_kept(write_video: WriteVideo) -> None:
    assert open_video(write_video(size=(47, 61))).get_frames([1]).shape == (1, 47, 61, 3)


def test_frames_after_a_change_of_size_are_scaled_to_the_first_ones(write_video: WriteVideo, tmp_path: Path) -> None:
    joined_file = tmp_path / "joined.h264"
    joined_file.write_bytes(write_video("a.h264").read_bytes() + write_video("b.h264", size=(96, 128)).read_bytes())
    with av.open(str(joined_file)) as source, av.open(str(tmp_path / "both.ts"), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(p for p in source.demux(video=0) if p.size):
            packet.pts = packet.dts = number * 3600
            packet.time_base, packet.stream = Fraction(1, 90000), stream
            target.mux(packet)
    video = open_video(tmp_path / "both.ts")
    assert read_frame_numbers(video.get_frames([3, 29, 30, 47])) == [3, 29, 0, 17]
    assert read_frame_numbers(video.get_frames([47, 3])) == [17, 3]
    assert {image.shape for image in video.iter_constant_rate()} == {(48, 64, 3)}


def test_wrong_frame_count_in_the_header_is_not_believed(write_video: WriteVideo) -> None:
    path = write_video("a.avi", codec="mpeg4")
    content = bytearray(path.read_bytes())
    for offset in (content.index(b"avih") + 8 + 16, content.index(b"strh") + 8 + 32):
        content[offset : offset + 4] = (9999).to_bytes(4, "little")
    path.write_bytes(content)
    assert len(open_video(path)) == 30


def test_metadata_that_is_not_utf8_is_ignored(write_video: WriteVideo) -> None:
    path = write_video("a.mkv")
    with av.open(str(path)) as source, av.open(str(path.with_name("b.mkv")), "w") as target:
        target.metadata["title"] = "TITLE"
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    path = path.with_name("b.mkv")
    path.write_bytes(path.read_bytes().replace(b"TITLE", b"\xff\xfe\xc3\x28\x80"))
    assert len(open_video(path)) == 30


def test_each_kind_of_broken_file_is_one_line_that_names_it(tmp_path: Path, write_video: WriteVideo) -> None:
    for kind, path in write_unreadable_files(tmp_path, write_video).items():
        with pytest.raises(VideoError) as caught:
            open_video(path).get_frames([0])
        message = str(caught.value)
        assert str(path) in message, kind
        assert "\n" not in message, kind


@pytest.mark.parametrize("name", ["a.mkv", "a.ts"])
def test_formats_made_for_streaming_give_the_whole_frames_before_a_cut(write_video: WriteVideo, name: str) -> None:
    path = write_video(name, num_frames=36)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    video = open_video(path)
    assert 0 < len(video) < 36
    assert read_frame_numbers(video.get_frames(range(len(video)))) == list(range(len(video)))


def test_an_avi_cut_within_a_frame_is_called_truncated(write_video: WriteVideo) -> None:
    path = write_video("a.avi", codec="mpeg4")
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"00dc", 0, content.rindex(b"idx1")) + 12])
    with pytest.raises(VideoError, match="truncated; only 29 of 30 frames are complete"):
        open_video(path)


def test_frames_that_a_seek_misses_in_a_damaged_index_are_counted(write_video: WriteVideo) -> None:
    path = write_video("a.avi", codec="mpeg4")
    expected, content = sequential(path), bytearray(path.read_bytes())
    entry = content.rindex(b"00dc", 0, content.rindex(b"00dc"))
    content[entry : entry + 4] = b"xxdc"  # an entry of the index that is not found after a seek
    path.write_bytes(content)
    video = open_video(path)
    np.testing.assert_array_equal(video.get_frames([0, 29]), expected[[0, 29]])
    np.testing.assert_array_equal(list(video.iter_frames([0, 14, 29])), expected[[0, 14, 29]])


def test_damaged_middle_is_counted_in_the_message(write_video: WriteVideo) -> None:
    path = write_video(num_frames=40, gop=250)
    with av.open(str(path)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    content = bytearray(path.read_bytes())
    for pos, size in packets[20:]:
        content[pos + 4 : pos + size] = bytes(size - 4)
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"decode"):
        open_video(path).get_frames([0, 39])


def test_frames_outside_the_video_are_refused(write_video: WriteVideo) -> None:
    video = open_video(write_video())
    for index in (30, -1):
        with pytest.raises(VideoError, match=f"frame index {index} is out of range 0 to 29"):
            video.get_frames([index])


def test_frame_folders_are_sorted_naturally_and_know_their_rate(tmp_path: Path) -> None:
    for number in range(12):
        cv2.imwrite(str(tmp_path / f"frame{number}.png"), numbered_frame(number)[..., ::-1])
    folder = open_video(tmp_path)
    assert (len(folder), folder.fps) == (12, 30.0)
    np.testing.assert_array_equal(
        folder.get_frames([10, 2, 2]), np.stack([numbered_frame(10), numbered_frame(2), numbered_frame(2)])
    )
    (tmp_path / "fps.txt").write_text("12.5\n")
    assert open_video(tmp_path).fps == 12.5


def test_frame_folders_with_bad_frames_are_video_errors(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "0.png"), numbered_frame(0))
    cv2.imwrite(str(tmp_path / "1.png"), numbered_frame(1, 32, 32))
    (tmp_path / "2.jpg").write_bytes(b"")
    with pytest.raises(VideoError, match="64×48 and 32×32"):
        open_video(tmp_path).get_frames([0, 1])
    with pytest.raises(VideoError, match=r"2\.jpg"):
        open_video(tmp_path).get_frames([2])


def test_arrays_are_videos_and_other_arrays_are_not() -> None:
    array = np.stack([numbered_frame(i) for i in range(5)])
    np.testing.assert_array_equal(ArrayReader(array, fps=10).get_frames([4, 0]), array[[4, 0]])
    with pytest.raises(VideoError, match="uint8"):
        ArrayReader(array.astype(np.float32))


def test_videos_can_be_sent_to_workers(write_video: WriteVideo) -> None:
    video = pickle.loads(pickle.dumps(open_video(write_video())))
    assert read_frame_numbers(video.get_frames([7])) == [7]
