"""`stillmotion order`, typed as a user would."""

import json
import re
from pathlib import Path

import pytest
from commands import Command
from debug_videos import write_classes


def test_clips_of_any_folder_are_told_from_their_reverses(tmp_path: Path) -> None:
    write_classes(tmp_path / "videos", videos=6, frames=10, size=32)
    (tmp_path / "videos" / "dark" / "torn.mp4").write_bytes(b"torn")
    given = (
        "--data",
        str(tmp_path / "videos" / "dark"),
        "--frames",
        "4",
        "--untrained",
        "--out",
        str(tmp_path / "out"),
    )
    command = Command("order", "--encoder", "debug-simclr", "debug-bod-simclr", *given)
    assert command.succeed() == ""
    assert command.answer.startswith("clips against their reverses, 2 test videos (videos parted 70/30 by seed 0)\n")
    for name in ("debug-simclr", "debug-simclr, untrained", "debug-bod-simclr"):
        assert re.search(rf"^{name} +[01]\.\d{{3}} \[", command.answer, re.MULTILINE)
    assert "torn.mp4: cannot be decoded" in command.answer
    assert (tmp_path / "out" / "results.txt").read_text() == command.answer
    assert json.loads((tmp_path / "out" / "results.json").read_text())["task"] == "reverse"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("order", "no encoder given"),
        ("order --encoder NOWHERE --data HERE", "neither a folder nor a recipe"),
        ("order --encoder debug-simclr --data HERE/nowhere", "no such file or folder"),
        ("order --encoder debug-simclr --pairs HERE/none.json", "none.json: not a JSON file"),
        ("order --encoder debug-simclr --frames 1 --videos 10", "1 frames have no order"),
        ("order --recipe debug", "give --out FOLDER and no --encoder"),
    ],
)
def test_a_mistake_is_one_line(line: str, words: str, tmp_path: Path) -> None:
    assert words in Command(*line.replace("HERE", str(tmp_path)).split()).refuse()


def test_help_teaches_by_example() -> None:
    command = Command("order", "--help")
    assert command.succeed() == ""
    assert "examples:\n  stillmotion order --encoder runs/mine --data ~/videos" in command.answer
