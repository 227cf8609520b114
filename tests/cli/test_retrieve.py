"""`stillmotion retrieve`, `clusters` and `search`, typed as a user would."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.cached_run import cached_run, use_slow_decomposition
from support.class_videos import write_class_folders
from support.process import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(cached_run("k400-bod-simclr"), tmp_path_factory.mktemp("runs") / "mine"))
    return use_slow_decomposition(folder)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write twelve videos in two classes and a file that is not a video."""
    return write_class_folders(
        tmp_path_factory.mktemp("videos") / "mine", videos_per_class=6, num_frames=10, image_size=32, with_broken=True
    )


def test_a_labeled_folder_is_searched_and_its_clusters_drawn(run: Path, videos: Path, tmp_path: Path) -> None:
    retrieve = Command(
        "retrieve", "--encoder", str(run), "debug:k400-bod-simclr", "--data", str(videos), "--num-clips", "2"
    )
    assert retrieve.expect_success() == ""
    assert re.search(r"recall@1 +recall@5 +recall@10 +mAP", retrieve.stdout)
    for kind in ("whole", "static", "dynamic", "concat"):
        assert re.search(rf"^mine +{kind} +[01]\.\d{{3}} ", retrieve.stdout, re.MULTILINE)
    assert str(videos / "dark" / "broken.mp4") in retrieve.stdout
    assert set(json.loads((run / "retrieval.json").read_text())["scores"]["static"]["class"]) == {
        *("recall@1", "recall@5", "recall@10", "mAP")
    }

    # The same videos and clips: nothing is embedded again.
    clusters = Command(
        "cluster", "--encoder", str(run), "--data", str(videos), "--num-clips", "2", "--features", "whole", "dynamic"
    )
    assert clusters.expect_success() == ""
    assert clusters.stdout.endswith(f"written: {run / 'clusters' / 'report.html'}\n")
    assert len(list((run / "features").iterdir())) == 1

    query = videos / "light" / "3.mp4"
    options = f"--encoder {run} --data {videos} --by static --top-k 4 --num-clips 2"
    result = Command("search", str(query), *options.split())
    assert str(videos / "dark" / "broken.mp4") in result.expect_success()
    lines = [line.split("  ") for line in result.stdout.splitlines()]
    assert len(lines) == 4
    assert str(query) not in result.stdout
    assert [Path(path).parent.name for _, path in lines] == ["light"] * 4
    cosines = [float(cosine) for cosine, _ in lines]
    assert cosines == sorted(cosines, reverse=True)
