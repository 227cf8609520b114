"""K200-40k is selected by a rule that gives the same list for every copy of Kinetics."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from stillmotion.data.datasets import config as datasets_config
from stillmotion.data.datasets.annotations import select_k200
from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.public_datasets import PUBLIC_DATASETS
from stillmotion.errors import StillmotionError
from stillmotion.utils.registry import Registry

COUNTS = {"abseiling": 4, "air drumming": 3, "archery": 2, "bowling": 5, "zumba": 3}


def kinetics(root: Path, suffix: str = ".mp4") -> Path:
    for name, count in COUNTS.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{name[:3]}-{i}{suffix}").touch()
    return root


def names_and_classes(videos: PathDataset) -> list[tuple[str, str]]:
    names = videos.classes["class"]
    labels = videos.labels["class"].tolist()
    return [(names[label], path.stem) for path, label in zip(videos.paths, labels, strict=True)]


def smallest(count: int, words: list[str]) -> list[str]:
    return sorted(sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())[:count])


def test_the_rule_takes_large_classes_and_their_videos_by_the_hash_of_their_names(tmp_path: Path) -> None:
    everything = VideoFolder(kinetics(tmp_path))
    subset = select_k200(everything, num_classes=3, videos_per_class=3)
    selected = smallest(3, [name for name, count in COUNTS.items() if count >= 3])
    assert subset.classes["class"] == selected
    stems = {name: [path.stem for path in everything.paths if path.parent.name == name] for name in selected}
    assert names_and_classes(subset) == [(name, stem) for name in selected for stem in smallest(3, stems[name])]
    assert subset.labels["class"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_another_copy_in_another_order_gives_the_same_list(tmp_path: Path) -> None:
    first = VideoFolder(kinetics(tmp_path / "a"))
    copy = VideoFolder(kinetics(tmp_path / "b", ".webm"))
    labels = copy.labels["class"][::-1].tolist()
    backwards = PathDataset(copy.paths[::-1], labels=labels, classes=copy.classes["class"], root=copy.root)
    assert names_and_classes(select_k200(backwards, num_classes=2, videos_per_class=2)) == names_and_classes(
        select_k200(first, num_classes=2, videos_per_class=2)
    )


def test_a_layout_opens_it_and_reports_missing_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kinetics(tmp_path / "train")
    with pytest.raises(StillmotionError, match="only 0 classes have at least 200 videos; K200-40k needs 200"):
        VideoDataConfig(tmp_path, layout="k200", split="train").open()
    small = replace(
        PUBLIC_DATASETS["k200"], select=lambda dataset: select_k200(dataset, num_classes=2, videos_per_class=2)
    )
    monkeypatch.setattr(
        datasets_config, "PUBLIC_DATASETS", Registry("data set", "datasets", {**PUBLIC_DATASETS.builtin, "k200": small})
    )
    subset = VideoDataConfig(tmp_path, layout="k200", split="train").open()
    assert isinstance(subset, PathDataset)
    assert names_and_classes(subset) == names_and_classes(
        select_k200(VideoFolder(root), num_classes=2, videos_per_class=2)
    )
