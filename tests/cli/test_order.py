"""`stillmotion order`, typed as a user would."""

import json
import re
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command


def test_clips_of_any_folder_are_told_from_their_reverses(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "videos", videos_per_class=6, num_frames=10, image_size=32)
    (tmp_path / "videos" / "dark" / "torn.mp4").write_bytes(b"torn")
    given = (
        "--data",
        str(tmp_path / "videos" / "dark"),
        "--num-frames",
        "4",
        "--compare-untrained",
        "--out",
        str(tmp_path / "out"),
    )
    command = Command("order", "--encoder", "debug:k400-simclr", "debug:k400-bod-simclr", *given)
    assert command.expect_success() == ""
    assert command.stdout.startswith("clips against their reverses, 2 test videos (videos parted 70/30 by seed 0)\n")
    for name in ("debug:k400-simclr", "debug:k400-simclr, untrained", "debug:k400-bod-simclr"):
        assert re.search(rf"^{name} +[01]\.\d{{3}} \[", command.stdout, re.MULTILINE)
    assert "torn.mp4: cannot be decoded" in command.stdout
    assert (tmp_path / "out" / "results.txt").read_text() == command.stdout
    assert json.loads((tmp_path / "out" / "results.json").read_text())["task"] == "reverse"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("order", "no encoder given"),
        ("order --encoder NOWHERE --data HERE", "neither a folder nor a recipe"),
        ("order --encoder debug:k400-simclr --data HERE/nowhere", "no such file or folder"),
        ("order --encoder debug:k400-simclr --action-pairs HERE/none.json", "none.json: not a JSON file"),
        ("order --encoder debug:k400-simclr --num-frames 1 --num-synthetic 10", "1 frames have no order"),
        ("order --recipe debug", "give --out FOLDER and no --encoder"),
    ],
)
def test_a_mistake_is_one_line(line: str, words: str, tmp_path: Path) -> None:
    assert words in Command(*line.replace("HERE", str(tmp_path)).split()).expect_error()


def test_help_teaches_by_example() -> None:
    command = Command("order", "--help")
    assert command.expect_success() == ""
    assert "examples:\n  stillmotion order --encoder runs/mine --data ~/videos" in command.stdout
