import numpy as np
import pytest

from stillmotion.data.datasets.splits import TrainTestConfig, open_classification_split
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.errors import StillmotionError


def splits_of_list(folder, rows):
    """Return the splits of a list with rows of class and split; no video is opened."""
    lines = ["path,class,split", *(f"{i}.mp4,{name},{split}" for i, (name, split) in enumerate(rows))]
    (folder / "labels.csv").write_text("\n".join(lines))
    return TrainTestConfig(str(folder))


def test_only_classes_that_are_trained_are_numbered(tmp_path):
    rows = [("sit", "train"), ("run", "train"), ("run", "test"), ("fly", "test"), ("sit", "test")]
    result = open_classification_split(splits_of_list(tmp_path, rows))
    assert result.classes == ["run", "sit"]
    assert result.train_labels.tolist() == [1, 0]
    assert result.test_labels.tolist() == [0, -1, 1]
    assert result.description == "official train and test split"


def test_videos_without_a_label_are_left_out(tmp_path):
    rows = [("sit", "train"), ("", "train"), ("run", "train"), ("", "test"), ("run", "test")]
    result = open_classification_split(splits_of_list(tmp_path, rows))
    assert (len(result.train), len(result.test)) == (2, 1)
    assert result.test.name(0).endswith("4.mp4")


def test_few_of_each_class_are_chosen_by_the_seed():
    config = TrainTestConfig("synthetic", num_synthetic=40)
    options = {"target": "shape", "per_class": 3, "synthetic": SyntheticConfig(values_per_factor=(2, 4, 2, 2))}
    result = open_classification_split(config, **options)
    assert np.bincount(result.train_labels).tolist() == [3, 3, 3, 3]
    assert len(result.test) == 40
    assert np.array_equal(result.train.indices, open_classification_split(config, **options).train.indices)
    np.testing.assert_array_equal(result.train.labels["shape"], result.train_labels)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("sit", "train"), ("sit", "train"), ("run", "test")], "same label, sit"),
        ([("", "train"), ("", "train"), ("", "test")], "no labels"),
    ],
)
def test_a_single_class_or_no_labels_are_errors(tmp_path, rows, message):
    with pytest.raises(StillmotionError, match=message):
        open_classification_split(splits_of_list(tmp_path, rows))


def test_mistakes_name_the_option(tmp_path):
    config = splits_of_list(tmp_path, [("sit", "train"), ("run", "train"), ("run", "test")])
    with pytest.raises(StillmotionError, match=r"no target 'shape'\. Choose one with --data\.target: class"):
        open_classification_split(config, target="shape")
    (tmp_path / "labels.csv").write_text("path,class,fold\na.mp4,sit,1\nb.mp4,run,2\n")
    with pytest.raises(StillmotionError, match=r"has no fold 7 .*Omit --fold or choose another"):
        open_classification_split(TrainTestConfig(str(tmp_path), fold=7))
