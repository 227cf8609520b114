"""Detection of the layout at a path, and the names of its videos."""

import re
from pathlib import Path

import pytest
import tyro
from support.numbered_videos import touch_files, write_numbered_video

from stillmotion.data.datasets.base import PathDataset, VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig, layout_names
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.errors import StillmotionError


def names(videos: VideoDataset) -> list[str]:
    assert isinstance(videos, PathDataset)
    assert videos.root is not None
    return [path.relative_to(videos.root).as_posix() for path in videos.paths]


SPLITS = (
    "path,class,label,split1,split2,fold\na.mp4,x,0,train,test,1\nb.mp4,y,1,test,train,2\nc.mp4,z,2,train,train,3\n"
)


def test_labels_csv_in_a_folder_is_used_with_its_split_columns(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(SPLITS)
    assert names(VideoDataConfig(tmp_path).open()) == ["a.mp4", "b.mp4", "c.mp4"]
    assert names(VideoDataConfig(tmp_path, split="train").open()) == ["a.mp4", "c.mp4"]
    val = VideoDataConfig(tmp_path, split="val").open()
    assert names(val) == ["b.mp4"]
    assert (val.labels["class"].tolist(), val.classes["class"]) == ([1], ["x", "y", "z"])  # as in the other splits
    assert names(VideoDataConfig(tmp_path, split="test", fold=2).open()) == ["a.mp4"]
    # Without a column split3, fold 3 is the test split.
    assert names(VideoDataConfig(tmp_path, split="train", fold=3).open()) == ["a.mp4", "b.mp4"]


def test_split_folders_are_splits(tmp_path: Path) -> None:
    touch_files(tmp_path, "train/run/a.mp4", "val/run/b.mp4")
    assert names(VideoDataConfig(tmp_path, split="train").open()) == ["run/a.mp4"]
    assert names(VideoDataConfig(tmp_path, split="test").open()) == ["run/b.mp4"]


def test_a_video_file_is_a_data_set_of_one(tmp_path: Path) -> None:
    dataset = VideoDataConfig(write_numbered_video(tmp_path / "a.mp4", num_frames=5)).open()
    assert (len(dataset), len(dataset.open_video(0))) == (1, 5)


def test_mistakes_are_one_line_with_the_remedy(tmp_path: Path) -> None:
    touch_files(tmp_path, "empty/readme.txt", "full/a.mp4")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "labels.csv").write_text(SPLITS)
    (tmp_path / "nothing.csv").touch()
    cases = [
        ({"path": tmp_path / "full", "layout": "imagenet"}, "no layout 'imagenet'; choose one of auto, folder, list"),
        ({"path": tmp_path / "full", "layout": "davis"}, "no layout 'davis'"),
        ({"path": tmp_path / "full", "split": "train"}, "split 'train' not found"),
        ({"path": tmp_path / "full", "annotations": tmp_path / "gone"}, "Give the annotation lists"),
        ({"path": tmp_path / "full", "annotations": tmp_path / "empty"}, "annotation format not recognized"),
        ({"path": tmp_path / "labels", "split": "test", "fold": 9}, "no fold 9; it has 1, 2, 3"),
        ({"path": tmp_path / "labels", "split": "best"}, "no row with split1 = best; it has test, train"),
        ({"path": tmp_path / "nothing.csv"}, "empty list"),
    ]
    for arguments, message in cases:
        with pytest.raises(StillmotionError, match=message) as caught:
            VideoDataConfig(**arguments).open()
        assert "\n" not in str(caught.value)


def test_a_pathlib_path_becomes_text(tmp_path: Path) -> None:
    videos = VideoDataConfig(touch_files(tmp_path, "a.mp4") / "a.mp4", annotations=tmp_path / "lists")
    assert (videos.path, videos.annotations) == (str(tmp_path / "a.mp4"), str(tmp_path / "lists"))
    assert videos == VideoDataConfig(str(tmp_path / "a.mp4"), annotations=str(tmp_path / "lists"))
    assert names(VideoDataConfig(tmp_path).open()) == ["a.mp4"]


def test_synthetic_videos_follow_their_config() -> None:
    dataset = VideoDataConfig("synthetic").open(synthetic=SyntheticConfig(num_videos=3, image_size=16), seed=5)
    assert (len(dataset), dataset.name(2)) == (3, "synthetic-5-2")
    assert dataset.open_video(0).get_frames([0]).shape == (1, 16, 16, 3)
    assert len(VideoDataConfig("synthetic").open()) == SyntheticConfig().num_videos


def test_the_help_names_every_layout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(VideoDataConfig, args=["--help"])
    output = capsys.readouterr().out.split("--layout")[1].split("--annotations")[0]
    assert {"auto", "folder", "shards", "k200", "diving48"} < set(layout_names())
    for name in layout_names():
        assert re.search(rf"\b{name}\b", output), name
