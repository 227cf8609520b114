from pathlib import Path

import numpy as np
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.data.datasets.config import VideoDataConfig


def test_both_kinds_are_made_as_a_user_types_them(tmp_path: Path) -> None:
    videos = write_class_folders(tmp_path / "videos", videos_per_class=2, num_frames=6, with_broken=True)
    runs = {
        kind: Command(
            "static-dynamic", "make", "--data", str(videos), "--variant", kind, "--out", str(tmp_path / kind), *more
        )
        for kind, more in {
            "static": ["--num-processes", "1"],
            "dynamic": ["--num-processes", "1", "--flow", "dis-fast"],
        }.items()
    }
    for kind, run in runs.items():
        run.expect_success()
        assert run.stdout.startswith(f"4 {kind} videos in {tmp_path / kind}\n1 video failed:\n")
        assert "broken.mp4" in run.stdout
        copy = VideoDataConfig(tmp_path / kind).open()
        assert copy.classes["class"] == ["dark", "light"]  # type: ignore[attr-defined]
        frames = [copy.open_video(i).get_frames(range(6)) for i in range(4)]
        assert all((f == f[0]).all() for f in frames) == (kind == "static")
        means = np.array([f.mean() for f in frames])
        assert (np.ptp(means) < 10) == (kind == "dynamic")  # dark and light differ in appearance alone
