from pathlib import Path

import pytest
from support.numbered_videos import numbered_frame, touch_files

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.csv_list import ListDataset
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.errors import VideoError


def names(videos: PathDataset) -> list[str]:
    assert videos.root is not None
    return [path.relative_to(videos.root).as_posix() for path in videos.paths]


def test_sub_folders_are_classes(tmp_path: Path) -> None:
    touch_files(
        tmp_path, "walk/b.mp4", "walk/a.AVI", "run/deep/c.webm", "run/notes.txt", ".hidden/d.mp4", "walk/.e.mp4"
    )
    dataset = VideoFolder(tmp_path)
    assert names(dataset) == ["run/deep/c.webm", "walk/a.AVI", "walk/b.mp4"]
    assert dataset.classes == {"class": ["run", "walk"]}
    assert dataset.labels["class"].tolist() == [0, 1, 1]


def test_videos_outside_class_folders_have_no_class(tmp_path: Path) -> None:
    flat = VideoFolder(touch_files(tmp_path / "flat", "a.mp4", "b.mp4"))
    assert (len(flat), flat.labels, flat.classes) == (2, {}, {})
    dataset = VideoFolder(touch_files(tmp_path / "mixed", "run/a.mp4", "z.mp4"))
    assert dict(zip(names(dataset), dataset.labels["class"].tolist(), strict=True)) == {"run/a.mp4": 0, "z.mp4": -1}


def test_folders_of_frames_are_videos(tmp_path: Path) -> None:
    import cv2

    for name in ("run/one", "walk/two"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(3):
            cv2.imwrite(str(tmp_path / name / f"{number}.png"), numbered_frame(number))
    dataset = VideoFolder(tmp_path)
    assert names(dataset) == ["run/one", "walk/two"]
    assert len(dataset.open_video(1)) == 3


@pytest.mark.parametrize(
    ("text", "labels", "classes"),
    [
        ("a.mp4,1\nsub/b c.mp4,0\n", [1, 0], ["0", "1"]),
        ("a.mp4 1\nsub/b.mp4 0\n", [1, 0], ["0", "1"]),
        ("a.mp4,run\nsub/b.mp4,walk\n", [0, 1], ["run", "walk"]),
        ("path,label\na.mp4,1\nsub/b.mp4,0\n", [1, 0], ["0", "1"]),
        ("\ufeffpath,class,label\na.mp4,run,1\n\nsub/b.mp4,walk,0\n", [1, 0], ["walk", "run"]),
        ("video,class\na.mp4,run\nsub/b.mp4,\n", [0, -1], ["run"]),
        ("a.mp4\nmy clip.mp4\n", None, None),
    ],
)
def test_lists_give_labels(tmp_path: Path, text: str, labels: list[int] | None, classes: list[str] | None) -> None:
    (tmp_path / "list.csv").write_text(text)
    dataset = ListDataset(tmp_path / "list.csv")
    assert names(dataset)[0] == "a.mp4"
    assert len(dataset) == 2
    assert {target: y.tolist() for target, y in dataset.labels.items()} == ({} if labels is None else {"class": labels})
    assert dataset.classes.get("class") == classes


def test_listed_paths_are_looked_for_beside_the_list_then_below_root(tmp_path: Path) -> None:
    touch_files(tmp_path, "lists/near.mp4", "videos/near.mp4", "videos/far.mp4", "else/there.mp4")
    list_file = tmp_path / "lists" / "train.csv"
    list_file.write_text(f"near.mp4 0\nfar.mp4 0\n{tmp_path}/else/there.mp4 0\n")
    dataset = ListDataset(list_file, tmp_path / "videos")
    assert [path.relative_to(tmp_path).as_posix() for path in dataset.paths] == [
        "lists/near.mp4",
        "videos/far.mp4",
        "else/there.mp4",
    ]


def test_a_listed_path_that_is_missing_is_an_unreadable_video(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("gone.mp4,0\n")
    with pytest.raises(VideoError, match=r"gone\.mp4: no such file"):
        ListDataset(tmp_path / "list.csv").open_video(0)
