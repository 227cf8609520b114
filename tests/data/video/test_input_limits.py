"""Limits on the videos that are read: pixels, shape, memory of a clip, formats."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.numbered_videos import WriteVideo

from stillmotion.data.transforms.sampling import read_clips
from stillmotion.data.video import input_limits, open_video
from stillmotion.data.video.reader import resample_fps
from stillmotion.data.video.writer import write_jpeg
from stillmotion.errors import StillmotionError, VideoError

DOCS = Path(__file__).parents[3] / "docs" / "guides" / "datasets.md"


def png_header(width: int, height: int) -> bytes:
    """Return a PNG whose header states a size but which has almost no data."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [7000, 16000, 40000])
def test_a_picture_that_claims_too_many_pixels_is_refused_by_its_header(
    tmp_path: Path, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0.png").write_bytes(png_header(side, side))
    monkeypatch.setattr("cv2.imdecode", lambda *_: pytest.fail("decoded the picture"))
    with pytest.raises(VideoError, match=rf"0.png: frames of {side}×{side} pixels are too large.*MAX_FRAME_PIXELS"):
        open_video(tmp_path).get_frames([0])


def test_a_small_gif_with_large_frames_is_refused_until_the_limit_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large.gif"
    Image.new("P", (8000, 8000)).save(file)
    with pytest.raises(VideoError, match="8000×8000 pixels are too large"):
        open_video(file)
    small = tmp_path / "small.gif"
    Image.new("P", (80, 80)).save(small)
    monkeypatch.setenv("STILLMOTION_MAX_FRAME_PIXELS", "6399")
    with pytest.raises(VideoError, match="80×80 pixels are too large; the limit is 6,399 pixels"):
        open_video(small)
    monkeypatch.setenv("STILLMOTION_MAX_FRAME_PIXELS", "6400")
    assert open_video(small).get_frames([0]).shape == (1, 80, 80, 3)


def test_frames_that_are_too_thin_or_too_many_for_memory_are_refused(
    tmp_path: Path, write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    thin = tmp_path / "thin"
    thin.mkdir()
    write_jpeg(thin / "0.jpg", np.zeros((2, 500, 3), np.uint8), quality=90)
    with pytest.raises(VideoError, match="500×2 pixels are too thin"):
        open_video(thin).get_frames([0])
    monkeypatch.setenv("STILLMOTION_MAX_ASPECT_RATIO", "250")
    assert open_video(thin).get_frames([0]).shape == (1, 2, 500, 3)
    video = open_video(write_video())
    height, width = video.get_frames([0]).shape[1:3]
    monkeypatch.setenv("STILLMOTION_MAX_CLIP_BYTES", str(5 * 3 * height * width))
    assert len(video.get_frames(range(5))) == 5
    with pytest.raises(VideoError, match=r"6 frames of .* pixels take .* GiB"):
        video.get_frames(range(6))
    assert sum(1 for _ in video.iter_frames(range(30))) == 30  # one at a time


def test_a_frame_that_is_repeated_in_many_clips_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("P", (80, 60)).save(tmp_path / "one.gif")
    video = open_video(tmp_path / "one.gif")
    monkeypatch.setenv("STILLMOTION_MAX_CLIP_BYTES", str(8 * 3 * 80 * 60))
    for opened in (video, resample_fps(video, 2 * video.fps)):
        assert read_clips(opened, np.zeros((2, 4), np.int64)).shape == (2, 4, 60, 80, 3)
        with pytest.raises(VideoError, match=r"one\.gif: 9 frames of 80×60 pixels take"):
            read_clips(opened, np.zeros((3, 3), np.int64))


SCRIPTS = {
    "concat.mp4": "ffconcat version 1.0\n" + "file concat.mp4\n" * 100_000,
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{video}\n",
    "session.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
    "a=rtpmap:96 H264/90000\n",
    "one.mp4": "ffconcat version 1.0\nfile {video}\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_playlists_and_scripts_are_refused(tmp_path: Path, write_video: WriteVideo, name: str) -> None:
    (tmp_path / name).write_text(SCRIPTS[name].replace("{video}", write_video().name))
    with pytest.raises(VideoError, match=f"{name}: not a video format that is read"):
        open_video(tmp_path / name)


def test_a_further_format_is_read_if_it_is_named(
    tmp_path: Path, write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.mp4").write_text(SCRIPTS["one.mp4"].replace("{video}", write_video().name))
    monkeypatch.setenv(input_limits.FORMATS_VARIABLE, "concat")
    assert len(open_video(tmp_path / "one.mp4")) == 30


def test_a_limit_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("many", "0", "-1", "nan", ""):
        monkeypatch.setenv("STILLMOTION_MAX_READ_SECONDS", text)
        with pytest.raises(StillmotionError, match=r"STILLMOTION_MAX_READ_SECONDS is .*; must be a number above 0"):
            _ = input_limits.READ_SECONDS.value


def test_every_limit_is_documented() -> None:
    text = DOCS.read_text()
    for variable in (input_limits.FORMATS_VARIABLE, *(limit.variable for limit in input_limits.INPUT_LIMITS)):
        assert f"`{variable}`" in text
