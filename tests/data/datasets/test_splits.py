import shutil

import numpy as np
import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.errors import StillmotionError

ROWS = [
    ("a0.mp4", "run", 1, "train"),
    ("a1.mp4", "run", 2, "train"),
    ("a2.mp4", "run", 3, "test"),
    ("b0.mp4", "sit", 1, "train"),
    ("b1.mp4", "sit", 2, "train"),
    ("b2.mp4", "sit", 3, "test"),
]


def write_list(folder, columns=("fold", "split")):
    """Write a list without videos; splitting does not open any."""
    at = {"fold": 2, "split": 3}
    lines = [",".join(["path", "class", *columns])]
    lines += [",".join([row[0], row[1], *(str(row[at[c]]) for c in columns)]) for row in ROWS]
    (folder / "labels.csv").write_text("\n".join(lines))
    return str(folder)


def names(train_test_split, indices):
    return [
        [train_test_split.dataset.name(int(i)).rsplit("/", 1)[1] for i in fold[indices]]
        for fold in train_test_split.folds
    ]


def test_a_list_is_split_by_its_split_or_fold_column(tmp_path):
    data = write_list(tmp_path)
    train_test_split = TrainTestConfig(data).open()
    assert names(train_test_split, 1) == [["a2.mp4", "b2.mp4"]]
    assert train_test_split.description == "official train and test split"
    second = TrainTestConfig(data, fold=2).open()
    assert names(second, 1) == [["a1.mp4", "b1.mp4"]]
    assert names(second, 0) == [["a0.mp4", "a2.mp4", "b0.mp4", "b2.mp4"]]
    assert second.description.endswith("fold 2")


def test_all_folds_test_every_video_once(tmp_path):
    train_test_split = TrainTestConfig(write_list(tmp_path), fold="all").open()
    assert len(train_test_split.folds) == 3
    assert train_test_split.description == "all 3 official folds"
    assert sorted(name for fold in names(train_test_split, 1) for name in fold) == sorted(row[0] for row in ROWS)
    for train, test in train_test_split.folds:
        assert sorted([*train, *test]) == list(range(6))
    with pytest.raises(StillmotionError, match="has only one split"):
        TrainTestConfig(write_list(tmp_path, ("split",)), fold="all").open()


def test_splits_match_classes_by_name(tmp_path):
    write_class_folders(tmp_path / "train", videos_per_class=2, num_frames=2)
    write_class_folders(tmp_path / "test", videos_per_class=1, num_frames=2)
    shutil.rmtree(tmp_path / "test" / "dark")  # in this split alone, "light" would be class 0
    train, test = TrainTestConfig(str(tmp_path)).open().train_test()
    assert train.classes["class"] == ["dark", "light"]
    assert train.labels["class"].tolist() == [0, 0, 1, 1]
    assert test.labels["class"].tolist() == [1]


def test_synthetic_train_and_test_videos_differ():
    train, test = TrainTestConfig("synthetic", num_synthetic=5).open().train_test()
    assert (len(train), len(test)) == (5, 5)
    assert list(train.labels) == ["color", "shape", "brightness", "trajectory"]
    assert not {train.name(i) for i in range(5)} & {test.name(i) for i in range(5)}
    assert (train.open_video(0).get_frames([0]) != test.open_video(0).get_frames([0])).any()
    np.testing.assert_array_equal(train.open_video(1).get_frames([3]), train.dataset.open_video(1).get_frames([3]))
