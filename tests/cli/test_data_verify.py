"""`stillmotion data check`, typed as a user would."""

from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command


@pytest.fixture
def hmdb51(tmp_path: Path) -> Path:
    root = write_class_folders(tmp_path / "hmdb51", videos_per_class=1, num_frames=3, image_size=16)
    for name in ("dark", "light"):
        (root / name / "0.mp4").rename(root / name / f"{name}_0.mp4")
        (root / f"{name}_test_split1.txt").write_text(f"{name}_0.avi 1 \n")
    return root


def test_a_complete_set_is_reported_as_complete(hmdb51: Path) -> None:
    command = Command("data", "verify", "hmdb51", str(hmdb51), "--num-workers", "1")
    assert command.expect_success() == ""
    assert command.stdout.startswith(f"hmdb51 in {hmdb51}: Found 2 of 2 listed videos\n")
    assert command.stdout.endswith("Complete: nothing missing or unreadable\n")


def test_what_is_missing_is_named_and_the_exit_code_tells(hmdb51: Path, tmp_path: Path) -> None:
    (hmdb51 / "dark" / "dark_0.mp4").unlink()
    (hmdb51 / "light" / "light_0.mp4").write_bytes(b"torn")
    list_file = tmp_path / "missing.txt"
    command = Command("data", "verify", "hmdb51", str(hmdb51), "--failures-file", str(list_file), "--num-workers", "1")
    assert command.wait() == 1
    assert command.stderr == ""
    assert "1 of 2 classes have no video:\n  dark\n1 unreadable:\n" in command.stdout
    assert list_file.read_text() == "dark\nlight/light_0\n"
