"""K200-40k by rule: the same list from every copy of Kinetics."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from stillmotion.data import videos
from stillmotion.data.k200 import k200
from stillmotion.data.paths import PathSet
from stillmotion.data.public import PUBLIC
from stillmotion.data.sets import FolderSet
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.registry import Registry

COUNTS = {"abseiling": 4, "air drumming": 3, "archery": 2, "bowling": 5, "zumba": 3}


def kinetics(root: Path, suffix: str = ".mp4") -> Path:
    for name, count in COUNTS.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{name[:3]}-{i}{suffix}").touch()
    return root


def listed(videos: PathSet) -> list[tuple[str, str]]:
    names = videos.classes["class"]
    labels = videos.labels["class"].tolist()
    return [(names[label], path.stem) for path, label in zip(videos.paths, labels, strict=True)]


def smallest(count: int, words: list[str]) -> list[str]:
    return sorted(sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())[:count])


def test_the_rule_takes_large_classes_and_their_videos_by_the_hash_of_their_names(tmp_path: Path) -> None:
    everything = FolderSet(kinetics(tmp_path))
    found = k200(everything, classes=3, each=3)
    chosen = smallest(3, [name for name, count in COUNTS.items() if count >= 3])
    assert found.classes["class"] == chosen
    stems = {name: [path.stem for path in everything.paths if path.parent.name == name] for name in chosen}
    assert listed(found) == [(name, stem) for name in chosen for stem in smallest(3, stems[name])]
    assert found.labels["class"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_another_copy_in_another_order_gives_the_same_list(tmp_path: Path) -> None:
    first = FolderSet(kinetics(tmp_path / "a"))
    copy = FolderSet(kinetics(tmp_path / "b", ".webm"))
    labels = copy.labels["class"][::-1].tolist()
    backwards = PathSet(copy.paths[::-1], labels=labels, classes=copy.classes["class"], root=copy.root)
    assert listed(k200(backwards, classes=2, each=2)) == listed(k200(first, classes=2, each=2))


def test_a_layout_opens_it_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kinetics(tmp_path / "train")
    with pytest.raises(StillmotionError, match="0 classes have 200 videos; K200-40k needs 200"):
        Videos(tmp_path, layout="k200", split="train").open()
    small = replace(PUBLIC["k200"], choose=lambda whole: k200(whole, classes=2, each=2))
    monkeypatch.setattr(videos, "PUBLIC", Registry("data set", "datasets", {**PUBLIC.own, "k200": small}))
    found = Videos(tmp_path, layout="k200", split="train").open()
    assert isinstance(found, PathSet)
    assert listed(found) == listed(k200(FolderSet(root), classes=2, each=2))


def test_videos_without_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    with pytest.raises(StillmotionError, match="0 classes"):
        Videos(tmp_path, layout="k200").open()
