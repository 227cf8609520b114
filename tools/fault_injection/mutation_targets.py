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
from tools.fault_injection.checks import read_index

_LISTS = {
    "ucf101": {
        "classInd.txt": "1 Archery\n2 Biking\n",
        "trainlist01.txt": "Archery/v_Archery_g08_c01.avi 1\nBiking/v_Biking_g08_c01.avi 2\n",
        "testlist01.txt": "Archery/v_Archery_g01_c01.avi\n",
    },
    "hmdb51": {"run_test_split1.txt": "run_1.avi 1 \n", "wave_test_split1.txt": "wave_1.avi 1 \nwave_2.avi 2 \n"},
    "kinetics": {
        "train.csv": "label,youtube_id,time_start,time_end,split\nabseiling,xyz,120,130,train\nzumba,v,0,10,train\n"
    },
    "ssv2": {
        "something-something-v2-labels.json": '{"Closing something": "1", "Putting something": "0"}',
        "something-something-v2-train.json": '[{"id": "74225", "template": "Closing [something]"}, {"id": 9}]',
    },
    "gym99": {
        "gym99_train_element_v1.1.txt": "A0x_E_1 1\nA0x_E_2 0\n",
        "gym99_categories.txt": "Clabel: 0; split\nb\n",
    },
    "diving48": {
        "Diving48_V2_train.json": '[{"vid_name": "8qRm", "label": 1}, {"vid_name": "CVAf", "label": 0}]',
        "Diving48_vocab.json": '[["Back", "PIKE"], ["Front", "FREE"]]',
    },
    "ava": {
        "ava_train_v2.2.csv": "a,0902,0.1,0.2,0.3,0.4,11,0\nb,0903,0.1,0.2,0.3,0.4,12,0\n",
        "ava_train_excluded_timestamps_v2.2.csv": "b,0904\n",
        "ava_action_list_v2.2.pbtxt": 'item {\n name: "sit"\n id: 11\n}\nitem {\n name: "run"\n id: 12\n}\n',
    },
    "breakfast": {
        "mapping.txt": "0 SIL\n1 pour_milk\n",
        "splits/train.split1.bundle": "#bundle\nP03_cam01_P03_milk.txt\nP04_cam01_P04_milk.txt\n",
        "splits/test.split1.bundle": "#bundle\nP05_cam01_P05_milk.txt\n",
        "groundTruth/P03_cam01_P03_milk.txt": "SIL\nSIL\npour_milk\n",
    },
}
_VIDEOS = (
    *("Archery/v_Archery_g08_c01.avi", "wave_1.avi", "xyz_000120_000130.mp4", "74225.webm", "9.webm", "A0x_E_1.mp4"),
    *("8qRm.mp4", "a.mp4", "P03_cam01_P03_milk.avi"),
)
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
        for name, files in _LISTS.items()
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
    few = sorted(videos.rglob("*.mp4"))[:_NUM_COPIED_VIDEOS]
    for name in names:
        folder = output_dir / name
        if name in _LISTS:
            contents: dict[str, Any] = {f"lists/{file}": text for file, text in _LISTS[name].items()}
            contents |= {f"videos/{video}": "" for video in _VIDEOS}
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
    for video in videos:
        shutil.copy2(video, originals)
    if name == "labels.csv":
        rows = [f"videos/{video.name},{i % 2},{'test' if i else 'train'}" for i, video in enumerate(videos)]
        (folder / "labels.csv").write_text("\n".join(["path,label,split", *rows]) + "\n")
    elif name == "copies":
        prepare_dataset(VideoDataConfig(str(originals)).open(), folder / "copies", _SMALL_COPIES)
    else:
        shards = PrepareConfig(short_side=24, format="shards")
        prepare_dataset(VideoDataConfig(str(originals)).open(), folder / "out", shards)
        for file in (folder / "out").iterdir():
            file.rename(folder / file.name)
