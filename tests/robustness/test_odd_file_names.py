"""Files of any name and kind are found once and copied, or reported."""

import os
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command
from support.transcoded import record_transcoded

from stillmotion.data.datasets.ava import _find_videos
from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.csv_list import ListDataset
from stillmotion.data.datasets.folder import VideoFolder, find_videos
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set

LATIN1_NAME = os.fsdecode(b"caf\xe9.mp4")
NAMES = [LATIN1_NAME, "http:a.mp4", "a" * 251 + ".mp4", "b" * 252 + ".ts", "é" * 126 + ".ts", "a, b\nc.mp4", "x.ts"]


@pytest.fixture
def odd_videos(tmp_path: Path) -> Path:
    """Write videos with unusual names, two that differ in the suffix only, a pipe and circular links."""
    folder = write_class_folders(tmp_path / "odd", videos_per_class=1, num_frames=3) / "dark"
    for name in (*NAMES, "a" * 251 + ".avi"):
        (folder / name).write_bytes((folder / "0.mp4").read_bytes())
    os.mkfifo(folder / "pipe.mp4")
    (folder / "self").symlink_to(".")
    (folder / "up").symlink_to("..")
    (folder / "round.mp4").symlink_to("again.mp4")
    (folder / "again.mp4").symlink_to("round.mp4")
    return folder.parent


def test_links_in_a_circle_count_every_video_once(odd_videos: Path) -> None:
    names = [path.name for path in find_videos(odd_videos)]
    other_names = ["0.mp4", "0.mp4", "a" * 251 + ".avi", "pipe.mp4", "round.mp4", "again.mp4"]
    assert sorted(names) == sorted([*NAMES, *other_names])
    assert _find_videos(odd_videos, {"x"}) == {"x": odd_videos / "dark" / "x.ts"}


def test_folders_of_frames_that_link_to_themselves_are_videos(odd_videos: Path, tmp_path: Path) -> None:
    prepare_dataset(VideoFolder(odd_videos / "light"), tmp_path / "frames", PrepareConfig(format="jpeg"))
    (tmp_path / "frames" / "0" / "self").symlink_to(".")
    assert list(find_videos(tmp_path / "frames")) == [tmp_path / "frames" / "0"]


@pytest.mark.parametrize("form", ["mp4", "jpeg", "static"])
def test_odd_names_are_copied_and_the_copy_opens(form: str, odd_videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = VideoFolder(odd_videos)
    if form == "static":
        lines = make_static_dynamic_set(data, out, StaticDynamicSetConfig("static"))
    else:
        lines = prepare_dataset(data, out, PrepareConfig(format=form))  # type: ignore[arg-type]
    failed_names = sorted(Path(line.source).name for line in lines if line.error)
    assert failed_names == ["again.mp4", "pipe.mp4", "round.mp4"]
    assert all(len(os.fsencode(Path(line.path).name)) <= 255 for line in lines)
    copy = VideoDataConfig(out).open()
    assert isinstance(copy, PathDataset)
    assert [len(copy.open_video(i)) for i in range(len(copy))] == [3] * (len(data) - 3)
    assert os.fsencode(LATIN1_NAME)[:4] in (out / "labels.csv").read_bytes()
    if form != "static":
        with record_transcoded() as transcoded:
            prepare_dataset(data, out, PrepareConfig(format=form))  # type: ignore[arg-type]
        assert sorted(Path(path).stem for path in transcoded) == [Path(name).stem for name in failed_names]


def test_the_command_names_what_it_left_out_though_the_name_is_no_text(odd_videos: Path, tmp_path: Path) -> None:
    (odd_videos / "dark" / LATIN1_NAME).write_bytes(b"no video")
    command = Command("prepare", "--data", str(odd_videos), "--num-processes", "1", "--out", str(tmp_path / "out"))
    command.expect_success()
    assert "4 videos failed:" in command.stdout
    assert "caf\\udce9.mp4: cannot be decoded" in command.stdout


def test_a_list_whose_names_are_no_text_is_read(odd_videos: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(
        b"path,label\n" + os.fsencode(odd_videos / "dark" / LATIN1_NAME) + b",caf\xe9\n" + b"x" * 300
    )
    result = ListDataset(tmp_path / "list.csv")
    assert len(result.open_video(0)) == 3
    lines = prepare_dataset(result, tmp_path / "out", PrepareConfig())
    assert [bool(line.error) for line in lines] == [False, True]
    assert VideoDataConfig(tmp_path / "out").open().classes == {"class": [os.fsdecode(b"caf\xe9")]}


def test_a_folder_of_frames_that_is_the_whole_set_is_copied_under_its_name(odd_videos: Path, tmp_path: Path) -> None:
    prepare_dataset(VideoFolder(odd_videos / "light"), tmp_path / "frames", PrepareConfig(format="jpeg"))
    (line,) = prepare_dataset(VideoFolder(tmp_path / "frames" / "0"), tmp_path / "again", PrepareConfig())
    assert (line.path, line.num_frames, line.error) == ("0.mp4", 3, "")
