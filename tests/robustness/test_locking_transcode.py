"""A folder of copies has one writer; truncated files in it are made again or refused in one line."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.class_videos import write_class_folders
from support.process import Command
from support.transcoded import record_transcoded

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError
from stillmotion.utils.file_lock import lock_dir

pytestmark = pytest.mark.slow

SMALL = PrepareConfig(short_side=16)


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "videos", videos_per_class=2, num_frames=3)


def copied_again(videos: Path, out: Path) -> list[str]:
    """Return the copies that another call makes; asserts that all are complete then."""
    with record_transcoded() as transcoded:
        lines = prepare_dataset(VideoFolder(videos), out, SMALL)
    assert [len(open_video(out / line.path)) for line in lines] == [3] * 4
    return transcoded


def test_a_second_command_on_a_folder_says_who_holds_it(videos: Path, tmp_path: Path) -> None:
    with lock_dir(tmp_path / "copies"):
        for verb in ("prepare", "static-dynamic make --variant static"):
            output = Command(*verb.split(), "--data", str(videos), "--out", str(tmp_path / "copies")).expect_error()
            assert "is being written by process" in output
        assert [file.name for file in (tmp_path / "copies").iterdir()] == [".lock"]


def test_what_a_killed_call_left_unfinished_is_taken_away(videos: Path, tmp_path: Path) -> None:
    leftovers = [tmp_path / "copies" / "dark" / name for name in (".4194304999-0.part.mp4", ".4194304999-1.part")]
    leftovers[1].mkdir(parents=True)
    leftovers[0].write_bytes(b"half")
    (leftovers[1] / "000000.jpg").write_bytes(b"half")
    prepare_dataset(VideoFolder(videos), tmp_path / "copies", SMALL)
    assert not any(path.exists() for path in leftovers)


def test_a_copy_whose_size_differs_from_its_manifest_entry_is_made_again(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    prepare_dataset(VideoFolder(videos), out, SMALL)
    content = (out / "dark" / "1.mp4").read_bytes()
    (out / "dark" / "1.mp4").write_bytes(content[:-20])
    assert copied_again(videos, out) == ["dark/1.mp4"]
    assert (out / "dark" / "1.mp4").read_bytes() == content


def test_a_copy_of_another_original_in_the_same_place_is_made_again(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    (videos / "dark" / "1.mp4").rename(videos / "dark" / "0.avi")  # which took the place of 0.mp4
    prepare_dataset(VideoFolder(videos), out, SMALL)
    (videos / "dark" / "0.mp4").rename(videos / "dark" / "2.mp4")
    lines = prepare_dataset(VideoFolder(videos), out, SMALL)
    result = {Path(line.source).name: line.path for line in lines if "dark" in line.path}
    assert result == {"0.avi": "dark/0.mp4", "2.mp4": "dark/2.mp4"}


CORRUPTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "torn": lambda line: json.dumps(line)[:30],
    "not text": lambda line: "\udcff\udcfe",
    "no object": lambda line: [1, 2],
    "other fields": lambda line: line | {"more": 1},
    "a number for a name": lambda line: line | {"source": 3},
    "a text for a number": lambda line: line | {"num_frames": "3"},
    "nothing": lambda line: line | {"settings": None},
    "out of the folder": lambda line: line | {"path": "../videos/dark/0.mp4"},
    "no place at all": lambda line: line | {"path": "a\0" + "b" * 300},
}


@pytest.mark.parametrize("mistake", CORRUPTIONS)
def test_a_line_that_is_torn_or_changed_is_not_believed(mistake: str, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    prepare_dataset(VideoFolder(videos), out, SMALL)
    first, *others = (out / "manifest.jsonl").read_text().splitlines(keepends=True)
    changed = CORRUPTIONS[mistake](json.loads(first))
    text = changed if isinstance(changed, str) else json.dumps(changed)
    (out / "manifest.jsonl").write_text("".join([text, "\n", *others]), errors="surrogateescape")
    assert copied_again(videos, out) == [json.loads(first)["path"]]
    assert copied_again(videos, out) == []


def test_torn_settings_are_written_anew_where_every_copy_tells_them(
    videos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "copies"
    prepare_dataset(VideoFolder(videos), out, SMALL)
    before = (out / "prepare.json").read_bytes()
    (out / "prepare.json").write_bytes(before[:9])
    assert copied_again(videos, out) == []
    assert (out / "prepare.json").read_bytes() == before
    assert "prepare.json was damaged and has been rewritten" in caplog.text
    (out / "prepare.json").write_bytes(b"null")
    with pytest.raises(StillmotionError, match=r"prepare\.json is damaged, .*choose another --out"):
        prepare_dataset(VideoFolder(videos), out, PrepareConfig(short_side=20))
    make_static_dynamic_set(VideoFolder(videos), tmp_path / "static", StaticDynamicSetConfig("static"))
    (tmp_path / "static" / "static_dynamic.json").write_bytes(b"\xff")
    make_static_dynamic_set(VideoFolder(videos), tmp_path / "static", StaticDynamicSetConfig("static"))
    assert "static_dynamic.json was damaged and has been rewritten" in caplog.text


def test_whatever_stands_in_the_files_of_a_copy_is_mended_or_refused(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    prepare_dataset(VideoFolder(videos), out, SMALL)
    refused: list[str] = []
    for name in ("manifest.jsonl", "prepare.json", "labels.csv"):
        content = (out / name).read_bytes()
        for number in range(30):
            rng = random.Random(number)
            position = rng.randrange(len(content))
            junk = rng.randbytes(rng.randrange(6))
            (out / name).write_bytes(content[:position] + junk + content[position + rng.choice((0, 1, len(content))) :])
            try:
                if name == "labels.csv":
                    TrainTestConfig(str(out)).open()
                else:
                    copied_again(videos, out)
            except StillmotionError as error:
                refused.append(str(error))
        (out / name).write_bytes(content)
    assert len(refused) > 5
    assert all(len(line.splitlines()) == 1 for line in refused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,label\na.mp4,9999999\n", "label 9999999 is too large; class ids must be between 0"),
        ("path,label\na.mp4,1\0\n", "not a text file"),
        ("path,label\n", "a header but no rows"),
        (f"path,label\n{'a' * 200_000},1\n", "cannot be read as a list of videos"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(StillmotionError, match=words):
        VideoDataConfig(tmp_path).open()


def test_two_commands_at_once_leave_one_whole_set(videos: Path, tmp_path: Path) -> None:
    words = f"prepare --data {videos} --short-side 16 --num-processes 1 --out {tmp_path / 'c'}".split()
    commands = [Command(*words), Command(*words)]
    codes = sorted(command.wait() for command in commands)
    assert codes in ([0, 2], [0, 0])  # the second may have started after the first had finished
    manifest = [json.loads(line) for line in (tmp_path / "c" / "manifest.jsonl").read_text().splitlines()]
    assert [len(open_video(tmp_path / "c" / line["path"])) for line in manifest] == [3] * 4
