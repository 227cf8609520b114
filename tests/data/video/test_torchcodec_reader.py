"""torchcodec's frames equal PyAV's; if it is not installed, a fake with its interface and PyAV's frames is used."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
import torch
from support.numbered_videos import VIDEO_KINDS, WriteVideo, read_frame_numbers

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.video import DECODER_ENV, open_video
from stillmotion.data.video.pyav_reader import PyAVReader
from stillmotion.data.video.torchcodec_reader import TorchCodecReader, import_torchcodec
from stillmotion.errors import StillmotionError, VideoError


class StandIn:
    """The used part of torchcodec's `VideoDecoder`: decodes every frame and orders them by time."""

    def __init__(
        self,
        source: str | bytes,
        *,
        stream_index: int,
        dimension_order: str,
        num_ffmpeg_threads: int,
        seek_mode: str,
    ) -> None:
        assert (dimension_order, num_ffmpeg_threads, seek_mode) == ("NHWC", 1, "exact")
        if isinstance(source, str):
            try:
                source.encode()
            except UnicodeEncodeError:
                raise RuntimeError("Expected a value of type 'str'") from None
        try:
            with av.open(io.BytesIO(source) if isinstance(source, bytes) else source) as container:
                frames: Any = container.decode(container.streams[stream_index])
                timed = [(f.time, np.rot90(f.to_ndarray(format="rgb24"), round(f.rotation / 90))) for f in frames]
        except av.FFmpegError as error:
            raise RuntimeError(str(error)) from None
        self.times, self.images = zip(*sorted(timed, key=lambda pair: pair[0]), strict=True)

    def __len__(self) -> int:
        return len(self.times)

    def get_frames_at(self, indices: list[int]) -> Any:
        return SimpleNamespace(
            data=torch.from_numpy(np.stack([self.images[number] for number in indices])),
            pts_seconds=torch.tensor([self.times[number] for number in indices], dtype=torch.float64),
        )


def use_decoder(decoder: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace torchcodec's decoder by this class."""
    package, decoders = ModuleType("torchcodec"), ModuleType("torchcodec.decoders")
    decoders.VideoDecoder = decoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchcodec", package)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", decoders)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    import_torchcodec.cache_clear()
    yield
    import_torchcodec.cache_clear()


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import_torchcodec()
    except StillmotionError:
        use_decoder(StandIn, monkeypatch)
    monkeypatch.setenv(DECODER_ENV, "torchcodec")


DECODED_BY_PYAV = {
    "avi",
    "avi with B-frames",
    "avi of H.264 with B-frames",
    "transport stream with B-frames",
    "webm of VP8",
    "raw mpeg4 without times",
}


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("kind", VIDEO_KINDS)
def test_frames_are_those_of_pyav(write_video: WriteVideo, kind: str) -> None:
    path = write_video(**VIDEO_KINDS[kind])
    video, expected = open_video(path), PyAVReader(path)
    assert isinstance(video, TorchCodecReader)
    assert (len(video), video.fps) == (len(expected), expected.fps)
    for indices in ([29, 3, 3, 12, 0, 17], range(30)):
        np.testing.assert_array_equal(video.get_frames(indices), expected.get_frames(indices))
    assert (video._decode_with_torchcodec([0, 1]) is None) == (kind in DECODED_BY_PYAV)


@pytest.mark.usefixtures("_installed")
def test_turned_and_unevenly_timed_videos_are_read_as_pyav_does(write_video: WriteVideo) -> None:
    path = write_video(times=np.cumsum(np.tile([1, 1, 7], 10)).tolist(), b_frames=2)
    content = path.read_bytes()
    upright, rotated_180 = (
        b"".join((n & 0xFFFFFFFF).to_bytes(4, "big") for n in (cos << 16, 0, 0, 0, cos << 16, 0, 0, 0, 1 << 30))
        for cos in (1, -1)
    )
    track = content.index(upright, content.index(b"tkhd"))
    turned = path.with_name("turned.mp4")
    turned.write_bytes(content[:track] + rotated_180 + content[track + 36 :])
    video = open_video(turned)
    assert isinstance(video, TorchCodecReader)
    assert video.constant_rate_indices is not None
    frames = video._decode_with_torchcodec([11, 4])
    np.testing.assert_array_equal(frames, PyAVReader(turned).get_frames([11, 4]))
    np.testing.assert_array_equal(frames, PyAVReader(path).get_frames([11, 4])[:, ::-1, ::-1])


@pytest.mark.usefixtures("_installed")
def test_names_are_no_addresses_and_need_not_be_utf8(write_video: WriteVideo) -> None:
    path = write_video()
    for name in (b"http:.mp4", b"concat:a|b.mp4", b"caf\xe9.mp4"):
        other = path.with_name(os.fsdecode(name))
        shutil.copy(path, other)
        np.testing.assert_array_equal(open_video(other).get_frames([7]), PyAVReader(path).get_frames([7]))


@pytest.mark.usefixtures("_installed")
def test_videos_in_shards_are_read_from_their_bytes(write_video: WriteVideo, tmp_path: Path) -> None:
    path = write_video("set/a.mp4", size=(96, 128))
    for form in ("mp4", "shards"):
        prepare_dataset(VideoFolder(path.parent), tmp_path / form, PrepareConfig(short_side=48, format=form))
    packed = VideoDataConfig(tmp_path / "shards").open().open_video(0)
    assert isinstance(packed, TorchCodecReader)
    np.testing.assert_array_equal(
        packed._decode_with_torchcodec([5, 2]), PyAVReader(tmp_path / "mp4" / "a.mp4").get_frames([5, 2])
    )


class Miscounting(StandIn):
    def __len__(self) -> int:
        return super().__len__() + 1


class Late(StandIn):
    def get_frames_at(self, indices: list[int]) -> Any:
        return super().get_frames_at([max(0, number - 1) for number in indices])


class Failing(StandIn):
    def get_frames_at(self, indices: list[int]) -> Any:
        raise RuntimeError("no more frames left to decode")


@pytest.mark.parametrize("decoder", [Miscounting, Late, Failing])
def test_what_it_misnumbers_or_fails_at_is_left_to_pyav(
    write_video: WriteVideo, decoder: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_decoder(decoder, monkeypatch)
    video = TorchCodecReader(write_video())
    assert video._decode_with_torchcodec([7, 3]) is None
    assert read_frame_numbers(video.get_frames([7, 3])) == [7, 3]


def test_a_decoder_that_is_unknown_or_not_installed_is_an_error(
    write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_video()
    monkeypatch.setenv(DECODER_ENV, "decord")
    with pytest.raises(StillmotionError, match="STILLMOTION_DECODER is 'decord'; must be pyav or torchcodec"):
        open_video(path)
    monkeypatch.setenv(DECODER_ENV, "torchcodec")
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    monkeypatch.delitem(sys.modules, "torchcodec.decoders", raising=False)
    with pytest.raises(StillmotionError, match="torchcodec cannot be loaded") as caught:
        open_video(path)
    assert not isinstance(caught.value, VideoError)  # otherwise every video would be skipped


def test_pyav_is_the_default_reader(write_video: WriteVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DECODER_ENV, raising=False)
    assert type(open_video(write_video())) is PyAVReader
