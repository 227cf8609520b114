"""An index that is interrupted, resumed and updated is the same as one built in one pass."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.class_videos import alter_bytes_keep_mtime
from support.shot_videos import write_shot_videos, write_shots

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError
from stillmotion.index import (
    VideoIndex,
    VideoSegmentConfig,
    build_index,
    default_index_dir,
    segment_embedder,
    segment_writer,
)
from stillmotion.index.locations import resolve_videos_dir
from stillmotion.index.storage.lance_tables import IndexTables
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.progress import RemainingTime

CUTTING = VideoSegmentConfig(max_seconds=2, overlap_seconds=0.5)


def rows(index: VideoIndex) -> list[dict[str, Any]]:
    """Return all stored rows, sorted by path and time."""
    result = IndexTables.open(index.uri)
    assert result is not None
    return sorted(result.segments.to_arrow().to_pylist(), key=lambda row: (row["path"], row["start"]))


class Killed(BaseException):
    """Raised where a process would be killed."""


def kill_after(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> None:
    """Make a method of the tables raise `Killed` after some successful calls."""
    original, calls_left = getattr(IndexTables, method), [times]

    def write(self: IndexTables, *values: Any) -> None:
        if calls_left[0] == 0:
            raise Killed
        calls_left[0] -= 1
        original(self, *values)

    monkeypatch.setattr(IndexTables, method, write)


def test_kills_additions_changes_and_removals_give_the_same_table(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stillmotion")
    folder = write_shot_videos(tmp_path / "videos", num_videos=5)
    write_shots(folder / "sub" / "it's long.mp4", (0, 4), (1, 7))

    def make(out: str | None = None) -> VideoIndex:
        return build_index(folder, encoder, out and tmp_path / out, segmentation=CUTTING)

    monkeypatch.setattr(segment_writer, "_COMMIT_ROWS", 2)  # many commits that can be interrupted
    monkeypatch.setattr(segment_embedder, "FRAMES_PER_BATCH", 12)
    for method, times in (("add_segments", 0), ("add_segments", 1), ("mark_completed", 1), ("add_segments", 1)):
        with monkeypatch.context() as patch:
            kill_after(patch, method, times)
            with pytest.raises(Killed):
                make()
    write_shot_videos(folder, num_videos=2, first_number=5)
    (folder / "1.mp4").unlink()
    alter_bytes_keep_mtime(folder / "2.mp4")
    with monkeypatch.context() as patch:
        kill_after(patch, "mark_completed", 1)
        with pytest.raises(Killed):
            make()
    index = make()
    assert len({moment.path for moment in index.segments()}) == 7
    assert len(index) > 10
    assert rows(index) == rows(make("again"))
    (folder / "sub" / "it's long.mp4").unlink()
    alter_bytes_keep_mtime(folder / "3.mp4")
    before = {row["path"]: row for row in rows(index)}
    index = make()
    assert caplog.messages[-1] == f"6 videos in {folder}: 0 new, 1 changed, 1 removed"
    assert rows(index) == rows(make("fresh"))
    assert before["3.mp4"]["id"] != index.segments()[2].id  # its content has changed
    for of, vector_name in ((index, "appearance"), (index, "motion")):
        assert np.array_equal(of.vectors(vector_name), [row[vector_name] for row in rows(of)])  # type: ignore[arg-type]


def test_videos_that_are_up_to_date_are_not_read_again(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=2)
    (folder / "broken.mp4").write_text("no video")
    first = build_index(folder, encoder)
    caplog.set_level("INFO", "stillmotion")
    module = sys.modules["stillmotion.index.builder"]
    monkeypatch.setattr(module, "open_video", lambda path: pytest.fail(f"{path} is read again"))
    second = build_index(folder, encoder)
    assert caplog.messages[-1:] == [f"3 videos in {folder}: the index is up to date"]
    assert rows(first) == rows(second)
    assert list(second.failed_videos()) == ["broken.mp4"]


def test_unreadable_videos_are_logged_and_read_again_when_they_change(
    tmp_path: Path, encoder: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=1)
    (folder / "empty.mp4").touch()
    content = write_shots(tmp_path / "whole.mp4", (0, 9)).read_bytes()
    (folder / "torn.avi").write_bytes(content[: len(content) // 2])
    index = build_index(folder, encoder, segmentation=CUTTING)
    assert [moment.path for moment in index.segments()] == ["0.mp4"]
    assert "2 unreadable videos skipped:" in caplog.messages
    assert {path: reason in "".join(caplog.messages) for path, reason in index.failed_videos().items()} == {
        "empty.mp4": True,
        "torn.avi": True,
    }
    (folder / "torn.avi").write_bytes(content)
    index = build_index(folder, encoder, segmentation=CUTTING)
    assert list(index.failed_videos()) == ["empty.mp4"]
    assert sum(moment.path == "torn.avi" for moment in index.segments()) > 2


def test_a_damaged_video_leaves_no_segment(tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "videos"
    file = write_shots(folder / "long.mp4", (0, 20))
    content = bytearray(file.read_bytes())
    middle = len(content) * 2 // 3
    content[middle : middle + 4000] = np.random.default_rng(0).bytes(4000)
    monkeypatch.setattr(segment_writer, "_COMMIT_ROWS", 1)
    file.write_bytes(content)
    index = build_index(folder, encoder, segmentation=CUTTING)
    # Either all of it could be decoded or none of it is in the index.
    assert bool(len(index)) != bool(index.failed_videos())


def test_encoders_settings_and_folders_are_not_mixed(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=1)
    before = rows(build_index(folder, encoder))
    other = write_shot_videos(tmp_path / "others", num_videos=1)
    tries: list[tuple[Callable[[], VideoIndex], str]] = [
        (
            lambda: build_index(folder, load("debug:k400-simclr"), default_index_dir(folder)),
            "built with flow@frames=6,size=48, not with debug:k400-simclr",
        ),
        (lambda: build_index(folder, encoder, segmentation=CUTTING), "other weights, settings or another version"),
        (
            lambda: build_index(other, encoder, default_index_dir(folder)),
            f"is the index of {folder}; choose another --out",
        ),
    ]
    for attempt, words in tries:
        with pytest.raises(StillmotionError, match=words):
            attempt()
    assert rows(VideoIndex.open(folder)) == before


def test_the_folder_is_not_written_to_and_the_index_has_one_writer(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=1)
    files = sorted(folder.rglob("*"))
    for out in (folder / "index", folder, tmp_path):
        with pytest.raises(StillmotionError, match="choose another --out"):
            build_index(folder, encoder, out)
    with lock_dir(default_index_dir(folder)), pytest.raises(StillmotionError, match="is being written by process"):
        build_index(folder, encoder)
    build_index(folder, encoder)
    assert sorted(folder.rglob("*")) == files
    for wrong, message in ((tmp_path / "nowhere", "no such folder"), (folder / "0.mp4", "is a file; give the folder")):
        with pytest.raises(StillmotionError, match=message):
            build_index(wrong, encoder)
    (tmp_path / "bare").mkdir()
    with pytest.raises(StillmotionError, match="no video found"):
        build_index(tmp_path / "bare", encoder)


def test_a_uri_is_passed_to_lancedb(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=2)
    index = build_index(folder, encoder, f"file://{tmp_path}/far")
    assert (tmp_path / "far" / "segments.lance").is_dir()
    assert index.local_dir == default_index_dir(folder)
    assert rows(VideoIndex.open(f"file://{tmp_path}/far")) == rows(build_index(folder, encoder))


def test_names_that_are_not_utf8_are_indexed(tmp_path: Path, encoder: Encoder) -> None:
    folder = tmp_path / "videos"
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/\xff'\xe9.mp4"))
    write_shots(folder / "a.mp4", (0, 2)).rename(odd)
    index = build_index(folder, encoder)
    (moment,) = index.segments()
    assert moment.path == "\\xff'\\xe9.mp4"
    assert index.video_path(moment.id) == odd
    assert len(build_index(folder, encoder)) == 1


def test_another_encoder_has_an_index_of_its_own(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=1)
    first = build_index(folder, encoder)
    second = build_index(folder, load("flow@frames=4,size=48"))
    assert second.local_dir == default_index_dir(folder, "flow@frames=4,size=48") != first.local_dir
    assert VideoIndex.open(folder).uri == first.uri
    assert build_index(folder, encoder).uri == first.uri


def test_remaining_time_is_logged_once_after_the_first_videos(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stillmotion")
    remaining = RemainingTime([10, 10, 40, 60])
    remaining.update(10)
    remaining._start -= 60
    remaining.update(10)
    remaining.update(40)
    assert caplog.messages == ["about 10 min for 2 more videos"]


def test_synthetic_videos_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stillmotion.index.locations._SYNTHETIC_CONFIG",
        SyntheticConfig(num_videos=3, num_frames=8),
    )
    folder = resolve_videos_dir("synthetic")
    files = sorted(folder.glob("*.mp4"))
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    assert resolve_videos_dir("synthetic") == folder
    assert [file.stat().st_mtime_ns for file in files] == times
    assert resolve_videos_dir(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["videos", "segments"])
def test_a_table_without_a_first_commit_is_created_again(name: str, tmp_path: Path, encoder: Encoder) -> None:
    write_shot_videos(tmp_path / "set", num_videos=2)
    expected_index = build_index(tmp_path / "set", encoder, tmp_path / "whole", segmentation=CUTTING)
    if name == "segments":
        IndexTables.create(str(tmp_path / "index"), expected_index.metadata)
    (tmp_path / "index" / f"{name}.lance" / "data").mkdir(parents=True)
    index = build_index(tmp_path / "set", encoder, tmp_path / "index", segmentation=CUTTING)
    assert [moment.path for moment in index.segments()] == [moment.path for moment in expected_index.segments()]
