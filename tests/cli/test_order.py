"""`stillmotion order`, typed as a user would."""

import json
import re
from pathlib import Path

from support.class_videos import write_class_folders
from support.process import Command


def test_clips_of_any_folder_are_distinguished_from_their_reverses(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "videos", videos_per_class=6, num_frames=10, image_size=32)
    (tmp_path / "videos" / "dark" / "torn.mp4").write_bytes(b"torn")
    line = f"order --encoder debug:k400-simclr debug:k400-bod-simclr --data {tmp_path / 'videos' / 'dark'} "
    line += f"--num-frames 4 --compare-untrained --out {tmp_path / 'out'}"
    command = Command(*line.split())
    assert command.expect_success() == ""
    assert "2 test videos" in command.stdout.partition("\n")[0]
    for name in ("debug:k400-simclr", "debug:k400-simclr, untrained", "debug:k400-bod-simclr"):
        assert re.search(rf"^{re.escape(name)}\b.* [01]\.\d{{3}} \[", command.stdout, re.MULTILINE)
    assert "torn.mp4: cannot be decoded" in command.stdout
    assert (tmp_path / "out" / "results.txt").read_text() == command.stdout
    assert json.loads((tmp_path / "out" / "results.json").read_text())["task"] == "reverse"
