from pathlib import Path

import numpy as np
from commands import Command
from debug_videos import write_classes

from stillmotion.data.videos import Videos


def test_both_kinds_are_made_as_a_user_types_them(tmp_path: Path) -> None:
    videos = write_classes(tmp_path / "videos", videos=2, frames=6)
    (videos / "dark" / "broken.mp4").write_bytes(b"no video")
    runs = {
        kind: Command(
            "controlled", "make", "--data", str(videos), "--version", kind, "--out", str(tmp_path / kind), *more
        )
        for kind, more in {
            "static": ["--processes", "1"],
            "dynamic": ["--processes", "1", "--flow", "dis-fast"],
        }.items()
    }
    for kind, run in runs.items():
        run.succeed()
        assert run.answer.startswith(f"4 {kind} videos in {tmp_path / kind}\n1 video left out:\n")
        assert "broken.mp4" in run.answer
        copy = Videos(tmp_path / kind).open()
        assert copy.classes["class"] == ["dark", "light"]  # type: ignore[attr-defined]
        frames = [copy.video(i).frames(range(6)) for i in range(4)]
        assert all((f == f[0]).all() for f in frames) == (kind == "static")
        means = np.array([f.mean() for f in frames])
        assert (np.ptp(means) < 10) == (kind == "dynamic")  # dark and light differ in appearance alone


def test_what_a_user_can_mend_is_one_line(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    (tmp_path / "empty").mkdir()
    wrong = {
        "there is no controlled 'bake'; did you mean make?": ["bake"],
        "no such file or folder": ["make", "--data", str(tmp_path / "none"), "--version", "static", *out],
        "no video found": ["make", "--data", str(tmp_path / "empty"), "--version", "static", *out],
        "invalid choice": ["make", "--data", str(tmp_path), "--version", "moving", *out],
    }
    runs = {words: Command("controlled", *arguments) for words, arguments in wrong.items()}
    for words, run in runs.items():
        assert words in run.refuse()
