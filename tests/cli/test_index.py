"""`stillmotion index` and `search` over it, typed as a user would."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.html import assert_self_contained
from support.process import Command

ENCODER = "flow@frames=6,size=48"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def videos(home: Path) -> Path:
    """Write twelve videos and a file that is not a video."""
    return write_class_folders(home / "videos", videos_per_class=6, num_frames=10, image_size=32, with_broken=True)


def start_command(home: Path, *arguments: str | Path) -> Command:
    return Command(*map(str, arguments), environment={"XDG_CACHE_HOME": str(home / "cache")})


@pytest.fixture(scope="module")
def index_dir(home: Path, videos: Path) -> Path:
    command = start_command(home, "index", videos, "--encoder", ENCODER)
    output = command.expect_success()
    assert f"13 videos in {videos}: 13 new, 0 changed, 0 removed" in output
    assert "1 unreadable video skipped:" in output
    assert str(videos / "dark" / "broken.mp4") in output
    assert re.fullmatch(rf"12 segments of 12 videos in {home}/cache/stillmotion/videos-[0-9a-f]{{8}}\n", command.stdout)
    return videos


def test_segments_are_found_by_appearance_by_motion_and_by_both(home: Path, index_dir: Path, tmp_path: Path) -> None:
    query = index_dir / "light" / "3.mp4"
    text = start_command(home, "search", query, "--index", index_dir, "--by", "appearance", "--top-k", "5")
    assert text.expect_success() == ""
    header, *lines = text.stdout.splitlines()
    assert header.split() == ["appearance", "motion", "segment"]
    result = [re.split(r"  +", line.strip()) for line in lines[:5]]
    assert [Path(file).parent.name for _, _, file, *_ in result] == ["light"] * 5
    assert "Ranked by appearance." in text.stdout
    assert str(query) not in text.stdout
    assert result[0][3] == "0.00–0.40 s"
    assert result[0][4].startswith("close")
    page = tmp_path / "found.html"
    search = start_command(
        home, "search", query, "--index", index_dir, "--motion-weight", "0.3", "--from", "0.1", "--json", "--page", page
    )
    assert search.expect_success() == ""
    rows = json.loads(search.stdout)
    assert len(rows) == 10
    for row in rows:
        # Motion similarity is reduced by the similarity of both segments to their neighbors.
        assert row["similarity"] <= 0.7 * row["appearance"] + 0.3 * row["motion"] + 1e-5
        assert Path(row["file"]) == index_dir / row["path"]
    content = page.read_text()
    assert content.count("data:video/mp4;base64,") == 11
    assert_self_contained(content)


@pytest.mark.slow
def test_a_killed_index_goes_on(home: Path, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    command = start_command(home, "index", videos, "--encoder", ENCODER, "--out", out)
    deadline = time.monotonic() + 60
    while command.is_running and not (out / "videos.lance").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    command.send(signal.SIGKILL)
    command.wait()
    second = start_command(home, "index", videos, "--encoder", ENCODER, "--out", out)
    assert "unreadable" in second.expect_success() or "up to date" in second.stderr
    assert "12 segments of 12 videos" in second.stdout
