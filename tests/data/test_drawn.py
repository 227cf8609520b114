"""Drawn videos in files."""

import pytest

from stillmotion.data.drawn import draw_files
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.video import open_video

FEW = SyntheticConfig(videos=3, length=6, size=32)


def test_files_show_what_was_drawn_and_are_named_by_it(tmp_path):
    folder = draw_files(tmp_path / "drawn", FEW)
    files, videos = sorted(folder.glob("*.mp4"), key=lambda file: file.stem[-3:]), SyntheticSet(FEW)
    assert len(files) == 3
    for i, file in enumerate(files):
        assert file.stem.split("-")[0] == videos.classes["color"][videos.labels["color"][i]]
        assert file.stem.split("-")[3] == videos.classes["trajectory"][videos.labels["trajectory"][i]]
        apart = open_video(file).frames(range(6)).astype(float) - videos.video(i).frames(range(6))
        assert abs(apart).mean() == pytest.approx(0, abs=8)


def test_files_that_are_there_stay(tmp_path):
    folder = draw_files(tmp_path, FEW)
    first, second, _ = sorted(folder.glob("*.mp4"))
    before = first.stat().st_mtime_ns
    second.unlink()
    draw_files(tmp_path, FEW)
    assert first.stat().st_mtime_ns == before
    assert second.exists()
