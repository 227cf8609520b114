"""Verbs that copy never write to their input, and do not read their own output."""

from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.csv_list import ListDataset
from stillmotion.data.datasets.folder import VideoFolder, find_videos
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import GENERATED_MARKER

SMALL = PrepareConfig(short_side=16)


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=3)


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("out", ["videos", "videos/small", ".", "videos/dark/../../videos", "link", "link/small"])
@pytest.mark.parametrize("verb", ["prepare", "static-dynamic make --variant static"])
def test_an_output_that_is_holds_or_lies_in_the_videos_is_refused(
    verb: str, out: str, videos: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(videos)
    before = file_contents(tmp_path)
    output = Command(*verb.split(), "--data", str(videos), "--out", f"{tmp_path}/{out}").expect_error()
    assert "which is read; choose another --out" in output
    assert file_contents(tmp_path) == before


def test_copies_of_listed_videos_stay_in_their_folder_and_spare_the_originals(videos: Path, tmp_path: Path) -> None:
    listed = tmp_path / "lists" / "list.csv"
    listed.parent.mkdir()
    listed.write_text(f"../videos/dark/0.mp4,0\n{videos}/light/0.mp4,1\n../../../../gone/0.mp4,1\n,0\n")
    before = file_contents(videos)
    lines = prepare_dataset(ListDataset(listed), tmp_path / "copies", SMALL)
    assert file_contents(videos) == before
    assert lines[0].path == "videos/dark/0.mp4"
    assert [bool(line.error) for line in lines] == [False, False, True, True]
    assert len(VideoDataConfig(tmp_path / "copies").open()) == 2
    for line in lines:
        assert (tmp_path / "copies" / line.path).resolve().is_relative_to(tmp_path / "copies")
    with pytest.raises(StillmotionError, match="would write over"):
        prepare_dataset(ListDataset(listed), videos, SMALL)
    assert file_contents(videos) == before


def test_a_link_in_the_output_leads_no_copy_out_of_it(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    out.mkdir()
    (out / "dark").symlink_to(videos / "dark")
    before = file_contents(tmp_path)
    with pytest.raises(
        StillmotionError, match=r"copies/dark is a symbolic link that points outside .*choose another --out"
    ):
        prepare_dataset(VideoFolder(videos), out, SMALL)
    assert file_contents(tmp_path) == before


def test_a_listed_link_is_not_replaced_by_its_copy(videos: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "0.mp4").symlink_to(videos / "dark" / "0.mp4")
    (tmp_path / "list.csv").write_text("links/0.mp4,0\n")
    with pytest.raises(StillmotionError, match="would write over"):
        prepare_dataset(ListDataset(tmp_path / "list.csv"), links, SMALL)
    assert (links / "0.mp4").is_symlink()


def test_files_of_somebody_else_are_not_replaced(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    (out / "dark" / "0").mkdir(parents=True)
    (out / "dark" / "0" / "diary.txt").write_text("precious")
    with pytest.raises(StillmotionError, match="dark/0 already exists and was not written by stillmotion"):
        prepare_dataset(VideoFolder(videos), out, PrepareConfig(short_side=16, format="jpeg"))
    assert (out / "dark" / "0" / "diary.txt").read_text() == "precious"


def test_copies_and_what_is_unfinished_are_no_input_unless_they_are_named(videos: Path, tmp_path: Path) -> None:
    prepare_dataset(VideoFolder(videos), tmp_path / "copies", SMALL)
    (videos / "dark" / ".17-0.part.mp4").write_bytes(b"left by a kill")
    assert (tmp_path / "copies" / GENERATED_MARKER).exists()
    assert [path.relative_to(tmp_path).parts[0] for path in find_videos(tmp_path)] == ["videos"] * 2
    assert len(VideoFolder(tmp_path / "copies")) == 2
    videos.rename(tmp_path / ".hidden")
    with pytest.raises(StillmotionError, match="copies, which stillmotion wrote, give that folder itself"):
        VideoFolder(tmp_path)


def test_a_video_takes_neither_the_place_of_a_folder_nor_that_of_the_manifest(videos: Path, tmp_path: Path) -> None:
    original = (videos / "dark" / "0.mp4").read_bytes()
    for name in ("dark.mp4", "manifest.jsonl.mp4", "labels.csv.mp4"):
        (videos / name).write_bytes(original)
    lines = prepare_dataset(VideoFolder(videos), tmp_path / "copies", PrepareConfig(short_side=16, format="jpeg"))
    assert len({line.path for line in lines}) == 5
    assert not any(line.error for line in lines)
    second = prepare_dataset(VideoFolder(videos), tmp_path / "copies", PrepareConfig(short_side=16, format="jpeg"))
    # All copies were reused.
    assert [line.elapsed_seconds for line in second] == [line.elapsed_seconds for line in lines]
