"""An index that is made, stopped, gone on with and brought up to date is the one that is made in one go."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from debug_videos import change_quietly
from scenes import write_folder, write_scenes

from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError
from stillmotion.files import locked
from stillmotion.index import Cutting, Index, build, default_place, keeping, showing
from stillmotion.index.drawn import or_drawn
from stillmotion.index.table import Tables

CUTTING = Cutting(seconds=2, overlap=0.5)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load("flow@frames=6,size=48")


def rows(index: Index) -> list[dict[str, Any]]:
    """Everything that is stored of the moments, by path and time."""
    found = Tables.open(index.address)
    assert found is not None
    return sorted(found.moments.to_arrow().to_pylist(), key=lambda row: (row["path"], row["start"]))


class Killed(BaseException):
    """The end of a process, as far as files can tell."""


def dies_after(monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> None:
    """Let a write of the tables happen so often, and the next never end."""
    real, left = getattr(Tables, method), [times]

    def write(self: Tables, *values: Any) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        real(self, *values)

    monkeypatch.setattr(Tables, method, write)


def test_kills_additions_changes_and_removals_leave_the_table_of_one_go(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "videos", videos=5)
    write_scenes(folder / "sub" / "it's long.mp4", (0, 4), (1, 7))
    said: list[str] = []

    def make(out: str | None = None) -> Index:
        return build(folder, encoder, out and tmp_path / out, cutting=CUTTING, say=said.append)

    monkeypatch.setattr(keeping, "_ROWS", 2)  # stored often, so that there is much to be stopped in
    monkeypatch.setattr(showing, "FRAMES", 12)
    for method, times in (("add", 0), ("add", 1), ("note", 1), ("add", 1)):
        with monkeypatch.context() as patched:
            dies_after(patched, method, times)
            with pytest.raises(Killed):
                make()
    write_folder(folder, videos=2, first=5)
    (folder / "1.mp4").unlink()
    change_quietly(folder / "2.mp4")
    with monkeypatch.context() as patched:
        dies_after(patched, "note", 1)
        with pytest.raises(Killed):
            make()
    index = make()
    assert len({moment.path for moment in index.moments()}) == 7
    assert len(index) > 10
    assert rows(index) == rows(make("again"))
    (folder / "sub" / "it's long.mp4").unlink()
    change_quietly(folder / "3.mp4")
    before = {row["path"]: row for row in rows(index)}
    index = make()
    assert said[-1] == f"6 videos in {folder}: 0 new, 1 changed, 1 gone"
    assert rows(index) == rows(make("fresh"))
    assert before["3.mp4"]["id"] != index.moments()[2].id  # its content is another
    for of, part in ((index, "look"), (index, "motion")):
        assert np.array_equal(of.vectors(part), [row[part] for row in rows(of)])  # type: ignore[arg-type]


def test_what_is_up_to_date_is_not_looked_at_again(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "videos", videos=2)
    (folder / "broken.mp4").write_text("no video")
    first = build(folder, encoder, say=lambda line: None)
    said: list[str] = []
    module = sys.modules["stillmotion.index.build"]
    monkeypatch.setattr(module, "open_video", lambda path: pytest.fail(f"{path} is read again"))
    again = build(folder, encoder, say=said.append)
    assert said == [f"3 videos in {folder}: the index is up to date"]
    assert rows(first) == rows(again)
    assert list(again.skipped()) == ["broken.mp4"]


def test_unreadable_videos_are_named_counted_and_looked_at_when_they_change(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_folder(tmp_path / "videos", videos=1)
    (folder / "empty.mp4").touch()
    whole = write_scenes(tmp_path / "whole.mp4", (0, 9)).read_bytes()
    (folder / "torn.avi").write_bytes(whole[: len(whole) // 2])
    said: list[str] = []
    index = build(folder, encoder, cutting=CUTTING, say=said.append)
    assert [moment.path for moment in index.moments()] == ["0.mp4"]
    assert said[1] == "2 unreadable videos were skipped:"
    assert {path: reason in "".join(said) for path, reason in index.skipped().items()} == {
        "empty.mp4": True,
        "torn.avi": True,
    }
    (folder / "torn.avi").write_bytes(whole)
    index = build(folder, encoder, cutting=CUTTING, say=said.append)
    assert list(index.skipped()) == ["empty.mp4"]
    assert sum(moment.path == "torn.avi" for moment in index.moments()) > 2


def test_a_video_that_breaks_off_leaves_no_moment(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "videos"
    file = write_scenes(folder / "long.mp4", (0, 20))
    content = bytearray(file.read_bytes())
    middle = len(content) * 2 // 3
    content[middle : middle + 4000] = np.random.default_rng(0).bytes(4000)
    monkeypatch.setattr(keeping, "_ROWS", 1)
    file.write_bytes(content)
    index = build(folder, encoder, cutting=CUTTING, say=lambda line: None)
    assert bool(len(index)) != bool(index.skipped())  # all of it could be decoded after all, or none of it is there


def test_two_encoders_settings_or_folders_do_not_mix(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_folder(tmp_path / "videos", videos=1)
    before = rows(build(folder, encoder, say=lambda line: None))
    other = write_folder(tmp_path / "others", videos=1)
    tries: list[tuple[Callable[[], Index], str]] = [
        (lambda: build(folder, load("debug-simclr")), "made with flow@frames=6,size=48, and not with debug-simclr"),
        (lambda: build(folder, encoder, cutting=CUTTING), "other weights, settings or version"),
        (lambda: build(other, encoder, default_place(folder)), f"is the index of {folder}; choose another --out"),
    ]
    for attempt, words in tries:
        with pytest.raises(StillmotionError, match=words):
            attempt()
    assert rows(Index.open(folder)) == before


def test_the_videos_folder_is_not_written_to_and_has_one_writer(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_folder(tmp_path / "videos", videos=1)
    there = sorted(folder.rglob("*"))
    for out in (folder / "index", folder, tmp_path):
        with pytest.raises(StillmotionError, match="choose another --out"):
            build(folder, encoder, out)
    with locked(default_place(folder)), pytest.raises(StillmotionError, match="is being written by process"):
        build(folder, encoder)
    build(folder, encoder, say=lambda line: None)
    assert sorted(folder.rglob("*")) == there
    for nowhere in (tmp_path / "nowhere", folder / "0.mp4"):
        with pytest.raises(StillmotionError, match="no such folder"):
            build(nowhere, encoder)
    (tmp_path / "bare").mkdir()
    with pytest.raises(StillmotionError, match="no video found"):
        build(tmp_path / "bare", encoder)


def test_an_address_is_given_to_lancedb_as_it_is(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_folder(tmp_path / "videos", videos=2)
    made = build(folder, encoder, f"file://{tmp_path}/far", say=lambda line: None)
    assert (tmp_path / "far" / "moments.lance").is_dir()
    assert made.folder == default_place(folder)
    assert rows(Index.open(f"file://{tmp_path}/far")) == rows(build(folder, encoder, say=lambda line: None))


def test_names_that_are_not_utf8_are_indexed_and_found_again(tmp_path: Path, encoder: Encoder) -> None:
    folder = tmp_path / "videos"
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/\xff'\xe9.mp4"))
    write_scenes(folder / "a.mp4", (0, 2)).rename(odd)
    index = build(folder, encoder, say=lambda line: None)
    (moment,) = index.moments()
    assert moment.path == "\\xff'\\xe9.mp4"
    assert index.file(moment.id) == odd
    assert len(build(folder, encoder, say=lambda line: None)) == 1


def test_how_long_it_takes_is_said_once_from_the_first_videos() -> None:
    said: list[str] = []
    clock = keeping.Clock([10, 10, 40, 60], said.append)
    clock.step(10)
    clock._start -= 60
    clock.step(10)
    clock.step(40)
    assert said == ["about 10 minutes for 2 more videos"]
    assert [keeping.duration(s) for s in (0.2, 80, 600, 9000)] == ["1 seconds", "80 seconds", "10 minutes", "2.5 hours"]


def test_drawn_videos_become_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillmotion.index.drawn._DRAWN", or_drawn.__globals__["SyntheticConfig"](videos=3, length=8))
    folder = or_drawn("synthetic")
    files = sorted(folder.glob("*.mp4"))
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    assert or_drawn("synthetic") == folder
    assert [file.stat().st_mtime_ns for file in files] == times
    assert or_drawn(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["videos", "moments"])
def test_a_table_that_was_killed_before_its_first_commit_is_made_anew(
    name: str, tmp_path: Path, encoder: Encoder
) -> None:
    write_folder(tmp_path / "set", videos=2)
    whole = build(tmp_path / "set", encoder, tmp_path / "whole", cutting=CUTTING)
    if name == "moments":
        Tables.create(str(tmp_path / "index"), whole.about)
    (tmp_path / "index" / f"{name}.lance" / "data").mkdir(parents=True)
    made = build(tmp_path / "set", encoder, tmp_path / "index", cutting=CUTTING)
    assert [moment.path for moment in made.moments()] == [moment.path for moment in whole.moments()]
