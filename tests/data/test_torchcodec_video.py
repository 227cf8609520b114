"""torchcodec's frames are PyAV's. Where it is not installed, a stand-in has its interface and PyAV's frames."""

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
from painted_videos import Write, numbers
from test_video import KINDS, broken_files

from stillmotion.data.file_video import FileVideo
from stillmotion.data.prepare import Prepare, prepare
from stillmotion.data.sets import FolderSet
from stillmotion.data.torchcodec_video import TorchcodecVideo, load_torchcodec
from stillmotion.data.video import DECODER, open_video
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError, VideoError


class StandIn:
    """torchcodec's `VideoDecoder`, as far as it is used: every frame decoded, and numbered by its time."""

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
                shown = [(f.time, np.rot90(f.to_ndarray(format="rgb24"), round(f.rotation / 90))) for f in frames]
        except av.FFmpegError as error:
            raise RuntimeError(str(error)) from None
        self.times, self.images = zip(*sorted(shown, key=lambda pair: pair[0]), strict=True)

    def __len__(self) -> int:
        return len(self.times)

    def get_frames_at(self, indices: list[int]) -> Any:
        return SimpleNamespace(
            data=torch.from_numpy(np.stack([self.images[number] for number in indices])),
            pts_seconds=torch.tensor([self.times[number] for number in indices], dtype=torch.float64),
        )


def use(decoder: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this class imported for torchcodec's."""
    package, decoders = ModuleType("torchcodec"), ModuleType("torchcodec.decoders")
    decoders.VideoDecoder = decoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchcodec", package)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", decoders)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    load_torchcodec.cache_clear()
    yield
    load_torchcodec.cache_clear()


@pytest.fixture(params=["a stand-in", "torchcodec"])
def _installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "a stand-in":
        use(StandIn, monkeypatch)
    else:
        try:
            load_torchcodec()
        except StillmotionError as error:
            pytest.skip(str(error))
    monkeypatch.setenv(DECODER, "torchcodec")


LEFT = {
    "avi",
    "avi with B-frames",
    "avi of H.264 with B-frames",
    "transport stream with B-frames",
    "webm of VP8",
    "raw mpeg4 without times",
}


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_those_of_pyav(video: Write, kind: str) -> None:
    path = video(**KINDS[kind])
    opened, expected = open_video(path), FileVideo(path)
    assert isinstance(opened, TorchcodecVideo)
    assert (len(opened), opened.fps) == (len(expected), expected.fps)
    for indices in ([29, 3, 3, 12, 0, 17], range(30)):
        np.testing.assert_array_equal(opened.frames(indices), expected.frames(indices))
    assert (opened._by_torchcodec([0, 1]) is None) == (kind in LEFT)


@pytest.mark.usefixtures("_installed")
def test_turned_and_unevenly_timed_videos_are_read_as_pyav_does(video: Write) -> None:
    path = video(times=np.cumsum(np.tile([1, 1, 7], 10)).tolist(), b_frames=2)
    content = path.read_bytes()
    upright, half = (
        b"".join((n & 0xFFFFFFFF).to_bytes(4, "big") for n in (cos << 16, 0, 0, 0, cos << 16, 0, 0, 0, 1 << 30))
        for cos in (1, -1)
    )
    track = content.index(upright, content.index(b"tkhd"))
    turned = path.with_name("turned.mp4")
    turned.write_bytes(content[:track] + half + content[track + 36 :])
    opened = open_video(turned)
    assert isinstance(opened, TorchcodecVideo)
    assert opened.paced is not None
    found = opened._by_torchcodec([11, 4])
    np.testing.assert_array_equal(found, FileVideo(turned).frames([11, 4]))
    np.testing.assert_array_equal(found, FileVideo(path).frames([11, 4])[:, ::-1, ::-1])


@pytest.mark.usefixtures("_installed")
def test_names_are_no_addresses_and_need_not_be_utf8(video: Write) -> None:
    path = video()
    for name in (b"http:.mp4", b"concat:a|b.mp4", b"caf\xe9.mp4"):
        other = path.with_name(os.fsdecode(name))
        shutil.copy(path, other)
        np.testing.assert_array_equal(open_video(other).frames([7]), FileVideo(path).frames([7]))


@pytest.mark.usefixtures("_installed")
def test_each_kind_of_broken_file_is_the_error_that_pyav_gives(tmp_path: Path, video: Write) -> None:
    for path in broken_files(tmp_path, video).values():
        with pytest.raises(VideoError) as caught:
            open_video(path).frames([0])
        assert str(path) in str(caught.value)


@pytest.mark.usefixtures("_installed")
def test_videos_in_shards_are_read_from_their_bytes(video: Write, tmp_path: Path) -> None:
    path = video("set/a.mp4", size=(96, 128))
    for form in ("mp4", "shards"):
        prepare(FolderSet(path.parent), tmp_path / form, Prepare(short_side=48, form=form))
    packed = Videos(tmp_path / "shards").open().video(0)
    assert isinstance(packed, TorchcodecVideo)
    np.testing.assert_array_equal(packed._by_torchcodec([5, 2]), FileVideo(tmp_path / "mp4" / "a.mp4").frames([5, 2]))


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
    video: Write, decoder: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(decoder, monkeypatch)
    opened = TorchcodecVideo(video())
    assert opened._by_torchcodec([7, 3]) is None
    assert numbers(opened.frames([7, 3])) == [7, 3]


def test_a_decoder_that_is_unknown_or_not_installed_is_an_error(video: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = video()
    monkeypatch.setenv(DECODER, "decord")
    with pytest.raises(StillmotionError, match="STILLMOTION_DECODER is 'decord'; it is pyav or torchcodec"):
        open_video(path)
    monkeypatch.setenv(DECODER, "torchcodec")
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    monkeypatch.delitem(sys.modules, "torchcodec.decoders", raising=False)
    with pytest.raises(StillmotionError, match="torchcodec cannot be loaded") as caught:
        open_video(path)
    assert not isinstance(caught.value, VideoError)  # else every video would be passed over


def test_pyav_reads_where_nothing_is_said(video: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DECODER, raising=False)
    assert type(open_video(video())) is FileVideo
