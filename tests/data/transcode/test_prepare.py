import json
from pathlib import Path

import av
import numpy as np
import pytest
from support.numbered_videos import read_frame_numbers, write_numbered_video
from support.progress import record_progress
from support.transcoded import record_transcoded

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set
from stillmotion.data.transcode.transcode_job import format_transcode_summary
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.data.video import open_video
from stillmotion.errors import VideoError


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    """Write videos of two classes in three containers, one with an odd size, and a broken file."""
    root = tmp_path / "originals"
    write_numbered_video(root / "run" / "a.mp4", num_frames=30, size=(96, 128), b_frames=2, gop=250)
    write_numbered_video(root / "run" / "b.avi", num_frames=20, size=(96, 128), codec="mpeg4", b_frames=2)
    write_numbered_video(root / "walk" / "a.mkv", num_frames=12, size=(71, 93))
    (root / "walk" / "broken.mp4").write_bytes(b"no video")
    return root


@pytest.mark.parametrize("format_name", ["mp4", "jpeg"])
def test_copies_show_every_frame_under_its_number_and_keep_labels(
    originals: Path, tmp_path: Path, format_name: str
) -> None:
    data = VideoFolder(originals)
    manifest = prepare_dataset(data, tmp_path / "copy", PrepareConfig(short_side=48, format=format_name))  # type: ignore[arg-type]
    copy = VideoDataConfig(tmp_path / "copy").open()
    assert isinstance(copy, PathDataset)
    readable = [i for i in range(len(data)) if not manifest[i].error]
    assert [data.paths[i].relative_to(originals).with_suffix("") for i in readable] == [
        path.relative_to(tmp_path / "copy").with_suffix("") for path in copy.paths
    ]
    assert copy.labels["class"].tolist() == data.labels["class"][readable].tolist()
    assert copy.classes == data.classes
    for row, i in enumerate(readable):
        video = copy.open_video(row)
        assert read_frame_numbers(video.get_frames(range(len(video)))) == list(range(len(data.open_video(i))))
        assert video.fps == pytest.approx(data.open_video(i).fps)
        height, width = video.get_frames([0]).shape[1:3]
        assert (min(height, width), height % 2, width % 2) == (48, 0, 0)


def test_the_copy_has_a_key_frame_every_gop(originals: Path, tmp_path: Path) -> None:
    prepare_dataset(VideoFolder(originals), tmp_path / "copy", PrepareConfig(short_side=48, gop_size=8))
    with av.open(str(tmp_path / "copy" / "run" / "a.mp4")) as container:
        keys = [number for number, packet in enumerate(container.demux(video=0)) if packet.is_keyframe]
    assert keys == [0, 8, 16, 24]


def test_training_from_the_copy_samples_the_same_clips(originals: Path, tmp_path: Path) -> None:
    (originals / "walk" / "broken.mp4").unlink()
    prepare_dataset(VideoFolder(originals), tmp_path / "copy", PrepareConfig(short_side=96))
    options = {"num_frames": 4, "stride": 2, "num_clips": 2, "augment": build_augmentation("slowfast", size=32)}
    original_clips, copied_clips = (
        TrainClipDataset(VideoDataConfig(root).open(), **options) for root in (originals, tmp_path / "copy")
    )  # type: ignore[arg-type]
    # a.mp4 and b.avi have the size of the copy, so their crops and colours are equal up to compression.
    for index in (0, 1):
        gap = (original_clips[3, index]["clips"] - copied_clips[3, index]["clips"]).abs()
        assert gap.mean() < 0.1


def test_unreadable_videos_are_named_and_left_out(originals: Path, tmp_path: Path) -> None:
    with record_progress() as progress:
        manifest = prepare_dataset(VideoFolder(originals), tmp_path / "copy", PrepareConfig(short_side=48))
    errors = [line for line in manifest if line.error]
    assert [Path(line.source).name for line in errors] == ["broken.mp4"]
    assert str(originals / "walk" / "broken.mp4") in errors[0].error
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(VideoDataConfig(tmp_path / "copy").open()) == 3
    with pytest.raises(VideoError, match=r"broken\.mp4"):
        prepare_dataset(VideoFolder(originals), tmp_path / "strict", PrepareConfig(short_side=48), strict=True)


def test_a_second_call_makes_only_what_is_missing(originals: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    data = VideoFolder(originals)
    first = prepare_dataset(data, copy, PrepareConfig(short_side=48))
    stamps = {line.path: (copy / line.path).stat().st_mtime_ns for line in first if not line.error}
    (copy / "run" / "b.mp4").unlink()
    (copy / "run" / ".a.mp4.part").write_bytes(b"left by a kill")
    with (copy / "manifest.jsonl").open("a") as manifest:
        manifest.write('{"source": "cut sho')
    with record_transcoded() as transcoded:
        second = prepare_dataset(data, copy, PrepareConfig(short_side=48))
    assert transcoded == ["run/b.mp4", "walk/broken.mp4"]
    assert [line.num_frames for line in second] == [line.num_frames for line in first]
    assert (copy / "run" / "a.mp4").stat().st_mtime_ns == stamps["run/a.mp4"]
    lines = [json.loads(line) for line in (copy / "manifest.jsonl").read_text().splitlines()]
    assert sorted(line["path"] for line in lines) == sorted(line.path for line in first)


def test_several_processes_make_the_files_of_one(originals: Path, tmp_path: Path) -> None:
    single = prepare_dataset(VideoFolder(originals), tmp_path / "one", PrepareConfig(short_side=48))
    parallel = prepare_dataset(VideoFolder(originals), tmp_path / "two", PrepareConfig(short_side=48), num_processes=2)
    assert [(line.path, line.num_frames, line.error) for line in single] == [
        (l.path, l.num_frames, l.error) for l in parallel
    ]
    for line in single:
        if not line.error:
            assert (tmp_path / "one" / line.path).read_bytes() == (tmp_path / "two" / line.path).read_bytes()


def test_split_columns_and_sources_that_differ_in_suffix_only_survive(tmp_path: Path) -> None:
    root = tmp_path / "originals"
    write_numbered_video(root / "a.mp4", num_frames=5)
    write_numbered_video(root / "a.avi", num_frames=7, codec="mpeg4")
    (root / "labels.csv").write_text("path,class,label,split1\na.mp4,x,0,train\na.avi,y,1,test\n")
    prepare_dataset(VideoDataConfig(root).open(), tmp_path / "copy", PrepareConfig(short_side=48))
    test = VideoDataConfig(tmp_path / "copy", split="test").open()
    assert (len(test), len(test.open_video(0))) == (1, 7)
    assert test.labels["class"].tolist() == [1]


def test_small_videos_are_not_enlarged(tmp_path: Path) -> None:
    path = write_numbered_video(tmp_path / "in" / "a.mp4", num_frames=3, size=(32, 40))
    prepare_dataset(PathDataset([path], root=path.parent), tmp_path / "copy", PrepareConfig(short_side=128))
    frames = open_video(tmp_path / "copy" / "a.mp4").get_frames([0])
    assert frames.shape == (1, 32, 40, 3)
    assert np.abs(frames.astype(float) - open_video(path).get_frames([0])).mean() < 4


def test_truncated_videos_are_reported_with_their_frame_counts(tmp_path: Path) -> None:
    video_file = write_numbered_video(tmp_path / "in" / "a.webm", num_frames=34, codec="libvpx-vp9")
    content = video_file.read_bytes()
    video_file.write_bytes(content[: len(content) // 2])
    for lines in (
        prepare_dataset(VideoFolder(tmp_path / "in"), tmp_path / "small", PrepareConfig()),
        make_static_dynamic_set(VideoFolder(tmp_path / "in"), tmp_path / "static", StaticDynamicSetConfig("static")),
        prepare_dataset(VideoFolder(tmp_path / "in"), tmp_path / "small", PrepareConfig()),  # keeps existing copies
    ):
        summary = format_transcode_summary(lines, "videos", missing=["gone"])
        assert summary[1] == "1 video was truncated:"
        assert f"a.webm: {lines[0].num_frames} of 34 frames can be read" in summary[2]
        assert summary[3:] == ["1 video is listed but missing:", "  gone"]
