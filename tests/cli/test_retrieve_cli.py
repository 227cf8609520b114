"""`stillmotion retrieve`, `clusters` and `search`, typed as a user would."""

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import Command
from debug_run import debug_run
from debug_videos import write_classes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a split that is never exactly zero: among zeros, everything is a tie."""
    folder = Path(shutil.copytree(debug_run("debug-bod-simclr"), tmp_path_factory.mktemp("runs") / "mine"))
    config = json.loads((folder / "config.json").read_text())
    config["method"]["split"] |= {"how": "slow", "radius": 0.3}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve videos in two classes, and a file that is none."""
    root = write_classes(tmp_path_factory.mktemp("videos") / "mine", videos=6, frames=10, size=32)
    (root / "dark" / "broken.mp4").write_bytes(b"no video")
    return root


def test_a_labelled_folder_is_searched_and_its_clusters_drawn(run: Path, videos: Path, tmp_path: Path) -> None:
    retrieve = Command("retrieve", "--encoder", str(run), "debug-bod-simclr", "--data", str(videos), "--clips", "2")
    assert retrieve.succeed() == ""
    assert re.search(r"R@1 +R@5 +R@10 +mAP", retrieve.answer)
    for kind in ("whole", "static", "dynamic", "both"):
        assert re.search(rf"^mine +{kind} +[01]\.\d{{3}} ", retrieve.answer, re.MULTILINE)
    assert str(videos / "dark" / "broken.mp4") in retrieve.answer
    assert set(json.loads((run / "retrieve.json").read_text())["scores"]["static"]["class"]) == {
        *("R@1", "R@5", "R@10", "mAP")
    }

    # The same videos and clips: nothing is embedded again.
    clusters = Command(
        "clusters", "--encoder", str(run), "--data", str(videos), "--clips", "2", "--by", "whole", "dynamic"
    )
    assert clusters.succeed() == ""
    assert clusters.answer.endswith(f"written: {run / 'clusters' / 'report.html'}\n")
    assert len(list((run / "features").iterdir())) == 1

    query = videos / "light" / "3.mp4"
    search = ("search", str(run), str(query), "--data", str(videos), "--by", "static", "--top", "4", "--clips", "2")
    found = Command(*search)
    assert str(videos / "dark" / "broken.mp4") in found.succeed()
    lines = [line.split("  ") for line in found.answer.splitlines()]
    assert len(lines) == 4
    assert str(query) not in found.answer
    assert [Path(path).parent.name for _, path in lines] == ["light"] * 4
    cosines = [float(cosine) for cosine, _ in lines]
    assert cosines == sorted(cosines, reverse=True)


MISTAKES = {
    "no encoder": ("retrieve --data VIDEOS", "--encoder"),
    "missing run": ("retrieve --encoder NOWHERE --data VIDEOS", "neither a folder nor a recipe"),
    "missing videos": ("retrieve --encoder RUN --data NOWHERE", "no such file or folder"),
    "empty folder": ("retrieve --encoder RUN --data EMPTY", "no video found"),
    "no folds": ("retrieve --encoder RUN --data VIDEOS --fold all", "no several folds"),
    "no such protocol": ("retrieve --encoder RUN --data VIDEOS --protocol loo", "'loo'"),
    "nowhere to write": ("clusters --encoder laptop --data VIDEOS", "give --out"),
    "missing query": ("search RUN NOWHERE.mp4 --data VIDEOS", "NOWHERE.mp4: no such file"),
    "broken query": ("search RUN VIDEOS/dark/broken.mp4 --data VIDEOS", "broken.mp4: "),
    "nothing to find": ("search RUN VIDEOS/dark/0.mp4 --data VIDEOS --top 0", "top is 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str, run: Path, videos: Path, tmp_path: Path) -> None:
    line, words = MISTAKES[mistake]
    (tmp_path / "empty").mkdir()
    places = {"RUN": run, "VIDEOS": videos, "NOWHERE": tmp_path / "nowhere", "EMPTY": tmp_path / "empty"}
    for word, place in places.items():
        line, words = line.replace(word, str(place)), words.replace(word, str(place))
    assert re.search(words, Command(*line.split()).refuse())


@pytest.mark.parametrize("verb", ["retrieve", "clusters"])
def test_help_teaches_by_example(verb: str) -> None:
    command = Command(verb, "--help")
    assert command.succeed() == ""
    assert f"examples:\n  stillmotion {verb} --encoder runs/mine" in command.answer
    assert "(required)" in command.answer
