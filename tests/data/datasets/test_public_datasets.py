"""Public sets that another package adds by an entry point."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.numbered_videos import touch_files, write_numbered_video

from stillmotion.data.datasets.config import VideoDataConfig, layout_help, layout_names
from stillmotion.data.datasets.public_datasets import PUBLIC_DATASETS, openable_datasets, verifiable_datasets
from stillmotion.data.datasets.verify import verify_dataset
from stillmotion.errors import StillmotionError
from stillmotion.utils import registry

PACKAGE = """
from stillmotion.data.datasets.annotations import AnnotationList
from stillmotion.data.datasets.list_files import read_text_lines
from stillmotion.data.datasets.public_datasets import SplitList, train_test_dataset


def read(folder, *, train, fold):
    pairs = [line.split() for line in read_text_lines(folder / f"mine_{'train' if train else 'test'}.txt")]
    return AnnotationList([((name,), int(label)) for name, label in pairs], ["run", "sit"])


LISTS = {"mine_train.txt": SplitList(True, num_videos=3), "mine_test.txt": SplitList(False)}
MINE = train_test_dataset("My videos", read, LISTS, marker_file="mine_*.txt")
"""


@pytest.fixture
def custom_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with a set `mine`; returns the folder of the set."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "my_sets.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.delitem(sys.modules, "my_sets", raising=False)
    entry_point = EntryPoint("mine", "my_sets:MINE", "stillmotion.datasets")
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [entry_point] if group == entry_point.group else [])
    for attribute in ("_entry_points", "_loaded"):
        monkeypatch.delitem(PUBLIC_DATASETS.__dict__, attribute, raising=False)
    root = tmp_path / "set"
    for name in "abc":
        write_numbered_video(root / "videos" / f"{name}.mp4", num_frames=2)
    (root / "lists").mkdir()
    (root / "lists" / "mine_train.txt").write_text("b 1\na 0\n")
    (root / "lists" / "mine_test.txt").write_text("c 1\ngone 0\n")
    return root


def classes_by_name(videos: VideoDataConfig) -> dict[str, str]:
    dataset = videos.open()
    labels, names = dataset.labels["class"], dataset.classes["class"]
    return {Path(dataset.name(i)).stem: names[label] for i, label in enumerate(labels)}


def test_a_set_from_outside_is_detected_by_its_mark(custom_set: Path) -> None:
    assert classes_by_name(VideoDataConfig(custom_set)) == {"b": "sit", "a": "run", "c": "sit"}
    assert classes_by_name(VideoDataConfig(custom_set, split="test")) == {"c": "sit"}
    config = VideoDataConfig(custom_set / "videos", annotations=custom_set / "lists" / "mine_train.txt", split="train")
    assert classes_by_name(config) == {"b": "sit", "a": "run"}


def test_a_set_from_outside_is_a_layout_and_in_the_help(custom_set: Path) -> None:
    assert classes_by_name(VideoDataConfig(custom_set, layout="mine", split="train")) == {"b": "sit", "a": "run"}
    assert "mine" in layout_names()
    assert layout_help().endswith("diving48 or mine.")
    with pytest.raises(StillmotionError, match="no layout 'mime'; did you mean mine"):
        VideoDataConfig(custom_set, layout="mime").open()


def test_a_set_from_outside_is_checked_by_its_lists(custom_set: Path) -> None:
    dataset = verify_dataset("mine", custom_set)
    assert (dataset.num_listed, dataset.num_found, dataset.missing_files, dataset.unreadable) == (4, 3, ["gone"], [])
    assert dataset.remarks == ["mine_train.txt names 2 videos; the official list names 3"]
    assert "mine" in verifiable_datasets()


def test_a_failing_package_is_named_when_its_set_is_opened(custom_set: Path, tmp_path: Path) -> None:
    (tmp_path / "package" / "my_sets.py").write_text("import nothing_of_that_name")
    folder = touch_files(tmp_path / "plain", "run/a.mp4")
    assert "mine" in openable_datasets()
    assert len(VideoDataConfig(folder, layout="folder").open()) == 1
    with pytest.raises(StillmotionError, match="data set 'mine' cannot be loaded from my_sets:MINE: No module"):
        VideoDataConfig(custom_set, layout="mine").open()


def test_every_set_can_be_opened_or_checked() -> None:
    assert set(openable_datasets()) | set(verifiable_datasets()) == set(PUBLIC_DATASETS)
    assert set(verifiable_datasets()) == set(PUBLIC_DATASETS) - {"k200"}
    assert all(public.title for public in PUBLIC_DATASETS.values())
