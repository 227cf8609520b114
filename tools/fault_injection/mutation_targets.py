"""Files that are mutated, and their readers: configurations, annotation lists, lists of copies and shards, indexes."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stillmotion.browse.group_labels import GroupLabels
from stillmotion.data.datasets.ava import AVADataset
from stillmotion.data.datasets.breakfast import BreakfastDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.public_datasets import PUBLIC_DATASETS
from stillmotion.data.datasets.shards import open_shard_dataset
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.verify import format_verification, verify_dataset
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.training.run_dir import load_any_config, open_run_dir
from stillmotion.training.tasks import TASKS, get_recipe, list_recipes
from tools.fault_injection.annotation_lists import ANNOTATION_LISTS, LISTED_VIDEOS
from tools.fault_injection.checks import read_index

_NUM_COPIED_VIDEOS = 3
_SMALL_COPIES = PrepareConfig(short_side=24)


class Target(NamedTuple):
    """A folder with files that are mutated.

    Attributes:
        files: Globs of the files.
        read: Function that reads the folder as commands do. It returns what was read.
        is_checked: Whether a change that is not reported must not change what is read: we write these files, and no
            person edits them.
        is_written: Whether reading may also write to the folder.
    """

    files: tuple[str, ...]
    read: Callable[[Path], object]
    is_checked: bool = False
    is_written: bool = False


def _use_all(*uses: Callable[[], object]) -> None:
    """Call all functions, and then raise the first error that a user can fix."""
    errors = []
    for use in uses:
        try:
            use()
        except StillmotionError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _read_lists(name: str, folder: Path) -> None:
    root, lists = folder / "videos", folder / "lists"

    def open_videos() -> None:
        if name == "ava":
            AVADataset(root, "train", annotations=lists, train=True)
            return
        if name == "breakfast":
            videos = BreakfastDataset(lists, train=True, video_root=root)
            videos.frame_labels(0)
            return
        open_dataset = PUBLIC_DATASETS[name].open
        assert open_dataset is not None
        dataset = open_dataset(root, lists, "train", 1)
        if not all(-1 <= label < len(dataset.classes["class"]) for label in dataset.labels["class"]):
            raise AssertionError("a label has no class")

    _use_all(open_videos, lambda: format_verification(verify_dataset(name, root, annotations=lists)))


def _read_csv(folder: Path) -> None:
    source = str(folder / "labels.csv")
    _use_all(VideoDataConfig(source).open, TrainTestConfig(source).open, VideoDataConfig(source, split="test").open)


def _read_copies(folder: Path) -> object:
    originals, copies = folder / "videos", folder / "copies"

    def open_copies() -> None:
        videos = VideoDataConfig(str(copies)).open()
        for i in range(len(videos)):
            videos.name(i)

    _use_all(open_copies, TrainTestConfig(str(copies)).open)
    return prepare_dataset(VideoDataConfig(str(originals)).open(), copies, _SMALL_COPIES)


def _read_shards(folder: Path) -> object:
    dataset = open_shard_dataset(str(folder))
    frames = [dataset.open_video(i).get_frames([0]).tobytes() for i in range(len(dataset))]
    names = [dataset.name(i).removeprefix(str(folder)) for i in range(len(dataset))]
    return frames, names, dataset.labels, dataset.classes, dataset.csv_rows


def _read_run(folder: Path) -> None:
    _use_all(partial(load_any_config, folder), partial(load, folder))


def _read_names(folder: Path) -> None:
    _use_all(
        lambda: GroupLabels(folder).labels_for("motion", [["a"], ["b"]]),
        lambda: GroupLabels(folder).set_label("motion", [["a"], ["b"]], 1, "walking"),
    )


LIST_TARGETS: dict[str, Target] = {
    **{
        name: Target(tuple(f"lists/{file}" for file in files), partial(_read_lists, name))
        for name, files in ANNOTATION_LISTS.items()
    },
    **{f"config of {verb}": Target(("config.json",), load_any_config) for verb in TASKS},
    "run": Target(("config.json",), _read_run),
    "labels.csv": Target(("labels.csv",), _read_csv),
    "copies": Target(
        ("copies/labels.csv", "copies/manifest.jsonl", "copies/prepare.json"), _read_copies, is_written=True
    ),
    "shards": Target(("shards.json", "shards.arrow"), _read_shards, is_checked=True),
}
INDEX_TARGETS: dict[str, Target] = {
    "index": Target(("*.lance/*/*",), read_index, is_checked=True),
    "names of groups": Target(("*.json",), _read_names),
}
TARGETS = LIST_TARGETS | INDEX_TARGETS


def write_targets(names: Iterable[str], output_dir: Path, *, videos: Path, run_dir: Path, index: Path | None) -> None:
    """Write the folders of targets, undamaged.

    Args:
        names: Names of the targets.
        output_dir: Folder of the folders.
        videos: Folder of small videos.
        run_dir: Folder of a pre-training run.
        index: Index of the videos, for the target of this name.
    """
    few = sorted(videos.rglob("*.mp4"), key=lambda video: video.name)[:_NUM_COPIED_VIDEOS]
    for name in names:
        folder = output_dir / name
        if name in ANNOTATION_LISTS:
            contents: dict[str, Any] = {f"lists/{file}": text for file, text in ANNOTATION_LISTS[name].items()}
            contents |= {f"videos/{video}": "" for video in LISTED_VIDEOS}
            for file, text in contents.items():
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        elif name == "index":
            assert index is not None
            shutil.copytree(index, folder)
        elif name == "names of groups":
            folder.mkdir()
            GroupLabels(folder).set_label("motion", [["a"], ["b"]], 0, "running")
        elif name == "run":
            shutil.copytree(run_dir, folder)
        elif name.startswith("config of "):
            folder.mkdir()
            verb = name.removeprefix("config of ")
            open_run_dir(folder, get_recipe(list_recipes(verb)[0], verb=verb))
        else:
            _write_videos_target(name, folder, few)


def _write_videos_target(name: str, folder: Path, videos: list[Path]) -> None:
    originals = folder / "videos"
    originals.mkdir(parents=True)
    for video in videos:  # in folders of classes
        (originals / video.parent.name).mkdir(exist_ok=True)
        shutil.copy2(video, originals / video.parent.name)
    if name == "labels.csv":
        rows = [
            f"videos/{video.parent.name}/{video.name},{i % 2},{'test' if i else 'train'}"
            for i, video in enumerate(videos)
        ]
        (folder / "labels.csv").write_text("\n".join(["path,label,split", *rows]) + "\n")
    elif name == "copies":
        prepare_dataset(VideoDataConfig(str(originals)).open(), folder / "copies", _SMALL_COPIES)
    else:
        shards = PrepareConfig(short_side=24, format="shards")
        prepare_dataset(VideoDataConfig(str(originals)).open(), folder / "out", shards)
        for file in (folder / "out").iterdir():
            file.rename(folder / file.name)
