"""Public sets that a package outside adds by an entry point."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from painted_videos import touch, write_video

from stillmotion import registry
from stillmotion.data.check import check
from stillmotion.data.public import PUBLIC, checkable, openable
from stillmotion.data.videos import Videos, layout_help, layouts
from stillmotion.errors import StillmotionError

PACKAGE = """
from stillmotion.data.layouts import Listing, read_lines
from stillmotion.data.public import Half, in_halves


def read(folder, *, train, fold):
    pairs = [line.split() for line in read_lines(folder / f"mine_{'train' if train else 'test'}.txt")]
    return Listing([((name,), int(label)) for name, label in pairs], ["run", "sit"])


LISTS = {"mine_train.txt": Half(True, videos=3), "mine_test.txt": Half(False)}
MINE = in_halves("My videos", read, LISTS, mark="mine_*.txt")
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a set `mine`, and the package that knows it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "my_sets.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.delitem(sys.modules, "my_sets", raising=False)
    point = EntryPoint("mine", "my_sets:MINE", "stillmotion.datasets")
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point] if group == point.group else [])
    for known in ("_added", "_loaded"):
        monkeypatch.delitem(PUBLIC.__dict__, known, raising=False)
    root = tmp_path / "set"
    for name in "abc":
        write_video(root / "videos" / f"{name}.mp4", frames=2)
    (root / "lists").mkdir()
    (root / "lists" / "mine_train.txt").write_text("b 1\na 0\n")
    (root / "lists" / "mine_test.txt").write_text("c 1\ngone 0\n")
    return root


def labelled(videos: Videos) -> dict[str, str]:
    found = videos.open()
    labels, names = found.labels["class"], found.classes["class"]
    return {Path(found.name(i)).stem: names[label] for i, label in enumerate(labels)}


def test_a_set_from_outside_is_detected_by_its_mark(mine: Path) -> None:
    assert labelled(Videos(mine)) == {"b": "sit", "a": "run", "c": "sit"}
    assert labelled(Videos(mine, split="test")) == {"c": "sit"}
    alone = Videos(mine / "videos", annotations=mine / "lists" / "mine_train.txt", split="train")
    assert labelled(alone) == {"b": "sit", "a": "run"}


def test_a_set_from_outside_is_a_layout_and_in_the_help(mine: Path) -> None:
    assert labelled(Videos(mine, layout="mine", split="train")) == {"b": "sit", "a": "run"}
    assert "mine" in layouts()
    assert layout_help().endswith("diving48 or mine.")
    with pytest.raises(StillmotionError, match="no layout 'mime'; did you mean mine"):
        Videos(mine, layout="mime").open()


def test_a_set_from_outside_is_checked_by_its_lists(mine: Path) -> None:
    found = check("mine", mine)
    assert (found.listed, found.present, found.missing, found.unreadable) == (4, 3, ["gone"], [])
    assert found.notes == ["mine_train.txt names 2 videos; the official list names 3"]
    assert "mine" in checkable()


def test_a_package_that_fails_is_named_where_its_set_is_asked_for(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "package" / "my_sets.py").write_text("import nothing_of_that_name")
    plain = touch(tmp_path / "plain", "run/a.mp4")
    assert "mine" in openable()
    assert len(Videos(plain, layout="folder").open()) == 1
    with pytest.raises(StillmotionError, match="data set 'mine' cannot be loaded from my_sets:MINE: No module"):
        Videos(mine, layout="mine").open()


def test_every_set_can_be_opened_or_checked() -> None:
    assert set(openable()) | set(checkable()) == set(PUBLIC)
    assert set(checkable()) == set(PUBLIC) - {"k200"}
    assert all(public.title for public in PUBLIC.values())
