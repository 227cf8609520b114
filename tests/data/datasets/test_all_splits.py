from pathlib import Path

import pytest
from support.numbered_videos import write_numbered_video

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig, VideoSource
from stillmotion.data.datasets.splits import open_all_splits
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset


def names(data: object) -> list[str]:
    assert isinstance(data, PathDataset)
    return sorted(path.stem for path in data.paths)


def ucf101(root: Path) -> Path:
    lists = root / "lists"
    lists.mkdir(parents=True)
    (lists / "classInd.txt").write_text("1 Jump\n2 Run\n3 Sit\n")
    groups = {1: "ab", 2: "ba"}
    for fold, (train, test) in groups.items():
        for split, letter in (("train", train), ("test", test)):
            lines = [f"{name}/v_{name}_{letter}.avi" for name in ("Run", "Sit")]
            (lists / f"{split}list{fold:02d}.txt").write_text("\n".join(lines))
    for name in ("Run", "Sit"):
        for letter in "ab":
            write_numbered_video(root / name / f"v_{name}_{letter}.avi", num_frames=3, codec="mpeg4")
    return root


def test_a_copy_of_a_published_set_has_its_folds_without_its_lists(tmp_path: Path) -> None:
    root = ucf101(tmp_path / "ucf")
    data = open_all_splits(VideoSource(root))
    assert len(data) == 4
    prepare_dataset(data, tmp_path / "copy", PrepareConfig(short_side=48))
    for fold in (1, 2):
        for split in ("train", "test"):
            original, copy = (
                VideoDataConfig(path, split=split, fold=fold).open() for path in (root, tmp_path / "copy")
            )
            assert names(copy) == names(original)
            assert copy.labels["class"].tolist() == original.labels["class"].tolist()


def test_sub_folders_train_and_test_become_a_column(tmp_path: Path) -> None:
    for path in ("train/run/a", "train/sit/b", "test/sit/c"):
        write_numbered_video(tmp_path / "in" / f"{path}.mp4", num_frames=3)
    prepare_dataset(open_all_splits(VideoSource(tmp_path / "in")), tmp_path / "copy", PrepareConfig(short_side=48))
    copy = VideoDataConfig(tmp_path / "copy", split="test").open()
    assert names(copy) == ["c"]
    assert copy.labels["class"].tolist() == [1]
    assert copy.classes["class"] == ["run", "sit"]
    assert names(VideoDataConfig(tmp_path / "copy", split="train").open()) == ["a", "b"]


@pytest.mark.parametrize("with_lists", [False, True])
def test_other_sets_are_as_they_are(tmp_path: Path, with_lists: bool) -> None:
    write_numbered_video(tmp_path / "in" / "run" / "a.mp4", num_frames=3)
    if with_lists:
        (tmp_path / "in" / "labels.csv").write_text("path,class,group\nrun/a.mp4,run,7\n")
    data = open_all_splits(VideoSource(tmp_path / "in"))
    assert names(data) == ["a"]
    assert isinstance(data, PathDataset)
    assert data.csv_rows == ([{"path": "run/a.mp4", "class": "run", "group": "7"}] if with_lists else [])
