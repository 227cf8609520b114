"""Videos in shards are equal to those of the original files."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import torch
from support.numbered_videos import write_numbered_video
from support.transcoded import record_transcoded

from stillmotion.data.datasets import shards
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.shards import ShardDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader, iter_eval_batches
from stillmotion.data.transcode import shard_writer
from stillmotion.data.transcode.manifest import ManifestEntry
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transforms.augment import EvalCrop, build_augmentation
from stillmotion.errors import StillmotionError, VideoError

SETTINGS = {"short_side": 48}


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    root = tmp_path / "originals"
    for i in range(7):
        write_numbered_video(root / ("run", "walk")[i % 2] / f"{i}.mp4", num_frames=10 + i, size=(96, 128))
    (root / "walk" / "broken.mp4").write_bytes(b"no video")
    return root


def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put two or three videos in each shard."""
    group_into_shards = shard_writer._group_into_shards
    monkeypatch.setattr(shard_writer, "_group_into_shards", lambda order, limit: group_into_shards(order, 15_000))


@pytest.fixture
def shards_dir(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_shards(monkeypatch)
    prepare_dataset(VideoFolder(originals), tmp_path / "packed", PrepareConfig(**SETTINGS, format="shards"))
    return tmp_path / "packed"


def write_index(shards_dir: Path, **changes: Any) -> None:
    """Rewrite shards.json with these changes and a valid hash."""
    index = json.loads((shards_dir / "shards.json").read_text()) | changes
    del index["hash"]
    (shards_dir / "shards.json").write_text(json.dumps({**index, "hash": shards.hash_shard_index(index)}))


def clips(videos: VideoDataset, *, workers: int = 0) -> list[torch.Tensor]:
    dataset = TrainClipDataset(videos, 4, 2, 2, build_augmentation("slowfast", size=16), seed=3)
    return [batch["clips"] for batch in ClipLoader(dataset, batch_size=3, num_workers=workers).iter_epoch(1)]


def test_clips_from_shards_are_those_from_files_bit_for_bit(originals: Path, shards_dir: Path, tmp_path: Path) -> None:
    prepare_dataset(VideoFolder(originals), tmp_path / "copy", PrepareConfig(**SETTINGS))
    copy, result = (VideoDataConfig(tmp_path / name).open() for name in ("copy", "packed"))
    assert isinstance(result, ShardDataset)
    assert (result.labels["class"] == copy.labels["class"]).all()
    assert result.classes == copy.classes
    assert [Path(result.name(i).rpartition("#")[0]).name for i in range(7)] == [
        Path(copy.name(i)).name for i in range(7)
    ]
    for workers in (0, 2):
        for expected, batch in zip(clips(copy), clips(result, workers=workers), strict=True):
            assert torch.equal(expected, batch)
    crop = EvalCrop(16, 16)
    eval_batches = [
        list(iter_eval_batches(EvalClipDataset(videos, 4, 2, 2, crop), batch_size=4)) for videos in (copy, result)
    ]
    assert all(torch.equal(a["clips"], b["clips"]) for a, b in zip(*eval_batches, strict=True))


def test_shards_are_plain_tar_files_of_pairs_and_the_index_says_where_each_lies(shards_dir: Path) -> None:
    index = json.loads((shards_dir / "shards.json").read_text())
    assert sorted(path.name for path in shards_dir.glob("*.tar")) == [shard["name"] for shard in index["shards"]]
    assert len(index["shards"]) > 2
    assert index["classes"] == ["run", "walk"]
    assert not (shards_dir / "staging").exists()
    rows = pa.ipc.open_file(str(shards_dir / "shards.arrow")).read_all().to_pylist()
    assert [sample["index"] for sample in rows] == list(range(7))  # the last one is broken
    keys = []
    for number, shard in enumerate(index["shards"]):
        content = (shards_dir / shard["name"]).read_bytes()
        rows_of_shard = sorted((s for s in rows if s["shard"] == number), key=lambda s: s["offset"])
        with tarfile.open(shards_dir / shard["name"], "r:") as tar:
            assert tar.getnames() == [f"{s['index']:09d}.{kind}" for s in rows_of_shard for kind in ("json", "mp4")]
            for sample in rows_of_shard:
                key = f"{sample['index']:09d}"
                video, about = (tar.extractfile(f"{key}.{kind}") for kind in ("mp4", "json"))
                assert video is not None
                assert about is not None
                assert content[sample["offset"] : sample["offset"] + sample["size"]] == video.read()
                metadata = json.load(io.BytesIO(about.read()))
                assert (metadata["class"], metadata["frames"]) == (sample["path"].split("/")[0], sample["frames"])
                assert sample["label:class"] == metadata["class"]
                keys.append(key)
    assert len(set(keys)) == 7
    assert keys != sorted(keys)  # assigned at random


def test_a_second_call_leaves_whole_shards_and_packs_again_what_is_gone(originals: Path, shards_dir: Path) -> None:
    def prepare_again(**settings: Any) -> list[ManifestEntry]:
        return prepare_dataset(
            VideoFolder(originals), shards_dir, PrepareConfig(**SETTINGS | settings, format="shards")
        )

    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in shards_dir.glob("*.tar")}
    lines = prepare_again()
    assert [bool(line.error) for line in lines] == [False] * 7 + [True]
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in shards_dir.glob("*.tar")} == before
    (shards_dir / "shard-000001.tar").unlink()
    prepare_again()
    assert {path.name: path.read_bytes() for path in shards_dir.glob("*.tar")} == {n: b for n, (b, _) in before.items()}
    with pytest.raises(StillmotionError, match="Choose another --out"):
        prepare_again(short_side=32)
    with pytest.raises(StillmotionError, match="Choose another --out"):
        prepare_dataset(VideoFolder(originals), shards_dir, PrepareConfig(**SETTINGS))
    write_numbered_video(originals / "run" / "more.mp4", num_frames=5)
    with pytest.raises(StillmotionError, match="holds shards of 8 other videos"):
        prepare_again()


def test_an_address_is_read_as_a_folder_is(shards_dir: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in shards_dir.glob("shard*"):
        memory.pipe_file(f"/sets/mine/{path.name}", path.read_bytes())
    remote, local = VideoDataConfig("memory://sets/mine").open(), VideoDataConfig(shards_dir).open()
    assert remote.name(0).startswith("memory://sets/mine/run/0.mp4#")
    for expected, batch in zip(clips(local), clips(remote), strict=True):
        assert torch.equal(expected, batch)
    with pytest.raises(StillmotionError, match=r"memory://sets/none/shards\.json: no such file"):
        VideoDataConfig("memory://sets/none").open()
    with pytest.raises(StillmotionError, match="nowhere://x"):
        VideoDataConfig("nowhere://x").open()
    memory.rm_file("/sets/mine/shard-000001.tar")
    unreadable = [i for i in range(7) if i in remote.indices_by_shard[1]]  # type: ignore[attr-defined]
    shards._fetch_bytes.cache_clear()
    with pytest.raises(VideoError, match=r"shard-000001\.tar, 0000000.. \(.*\.mp4\): no such file"):
        remote.open_video(unreadable[0]).get_frames([0])


def test_a_damaged_shard_is_one_line_that_names_it_and_the_key(shards_dir: Path) -> None:
    videos = VideoDataConfig(shards_dir).open()
    assert isinstance(videos, ShardDataset)
    shard = shards_dir / "shard-000000.tar"
    content = bytearray(shard.read_bytes())
    first, last = videos.indices_by_shard[0][[0, -1]]
    content[1024 + 512 + 50] ^= 255
    shard.write_bytes(content[: len(content) - 12_000])
    shards._fetch_bytes.cache_clear()
    with pytest.raises(VideoError, match=r"shard-000000\.tar, \d{9} \(.*\): checksum mismatch"):
        videos.open_video(int(first))
    with pytest.raises(VideoError, match=r"shard-000000\.tar, \d{9} \(.*\): only \d+ of \d+ bytes exist"):
        videos.open_video(int(last))
    batch = next(iter_eval_batches(EvalClipDataset(videos, 4, 2, 1, EvalCrop(16, 16)), batch_size=7))
    assert {name for name, _ in batch["failed"]} == {videos.name(int(i)) for i in videos.indices_by_shard[0]}
    write_index(shards_dir, shards=[{"size": 3}])
    with pytest.raises(StillmotionError, match="not an index of shards"):
        VideoDataConfig(shards_dir).open()
    (shards_dir / "shards.json").write_text('{"versi')
    with pytest.raises(StillmotionError, match="is damaged"):
        VideoDataConfig(shards_dir).open()


def test_a_damaged_list_is_one_line(shards_dir: Path) -> None:
    file = shards_dir / "shards.arrow"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    with pytest.raises(StillmotionError, match=r"shards\.arrow is damaged"):
        VideoDataConfig(shards_dir).open()
    file.unlink()
    with pytest.raises(StillmotionError, match=r"shards\.arrow: no such file"):
        VideoDataConfig(shards_dir).open()


def test_strange_indexes_are_one_line(shards_dir: Path) -> None:
    for changes, expected in (
        ({"shards": []}, "shards.json has 0"),
        ({"shards": [{"name": "/etc/passwd", "size": 1}] * 9}, "'/etc/passwd' is not the name of a file in"),
        ({"shards": [{"name": "../x.tar", "size": 1}] * 9}, r"'\.\./x\.tar' is not the name of a file in"),
    ):
        write_index(shards_dir, **changes)
        with pytest.raises(StillmotionError, match=expected):
            VideoDataConfig(shards_dir).open()


def test_a_pipe_in_place_of_a_file_is_an_error(shards_dir: Path) -> None:
    videos = VideoDataConfig(shards_dir).open()
    assert isinstance(videos, ShardDataset)
    first = int(videos.indices_by_shard[0][0])
    for name in ("shard-000000.tar", "shards.arrow"):
        (shards_dir / name).unlink()
        os.mkfifo(shards_dir / name)
    shards._fetch_bytes.cache_clear()
    with pytest.raises(VideoError, match=r"shard-000000.tar, .*: not a regular file \(pipe, socket or device\)"):
        videos.open_video(first)
    with pytest.raises(StillmotionError, match=r"shards.arrow: not a regular file \(pipe, socket or device\)"):
        VideoDataConfig(shards_dir).open()


def test_another_process_maps_the_list_instead_of_being_sent_it(shards_dir: Path) -> None:
    videos = VideoDataConfig(shards_dir).open()
    names = [videos.name(i) for i in range(len(videos))]
    assert videos.labels["class"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    sent = pickle.dumps(videos)
    assert names[3].rpartition("/")[2].partition("#")[0].encode() not in sent
    second = pickle.loads(sent)
    assert [second.name(i) for i in range(len(second))] == names
    assert second.labels["class"].tolist() == videos.labels["class"].tolist()


def test_splits_and_classes_are_kept(tmp_path: Path) -> None:
    root = tmp_path / "originals"
    for name in "abc":
        write_numbered_video(root / f"{name}.mp4", num_frames=5)
    (root / "labels.csv").write_text("path,class,split1\na.mp4,x,train\nb.mp4,y,test\nc.mp4,z,train\n")
    prepare_dataset(VideoDataConfig(root).open(), tmp_path / "packed", PrepareConfig(format="shards"))
    test = VideoDataConfig(tmp_path / "packed", split="test").open()
    assert (len(test), test.labels["class"].tolist(), test.classes["class"]) == (1, [1], ["x", "y", "z"])
    assert "/b.mp4#" in test.name(0)
    with pytest.raises(StillmotionError, match="no column split2"):
        VideoDataConfig(tmp_path / "packed", split="test", fold=2).open()


def test_shards_are_prepared_anew_as_files(shards_dir: Path, tmp_path: Path) -> None:
    lines = prepare_dataset(VideoDataConfig(shards_dir).open(), tmp_path / "files", PrepareConfig(short_side=32))
    assert [line.path for line in lines[:2]] == ["run/0.mp4", "run/2.mp4"]
    assert len(VideoDataConfig(tmp_path / "files").open()) == 7


def test_a_call_stopped_while_it_packs_packs_again_what_is_copied(
    originals: Path, shards_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, add, added = tmp_path / "stopped", shard_writer._add_sample, []

    def interrupt(*arguments: Any) -> Any:
        added.append(arguments)
        if len(added) == 4:
            raise KeyboardInterrupt
        return add(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shard_writer, "_add_sample", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_dataset(VideoFolder(originals), out, PrepareConfig(**SETTINGS, format="shards"))
    assert not (out / "shards.json").exists()
    with record_transcoded() as transcoded:
        prepare_dataset(VideoFolder(originals), out, PrepareConfig(**SETTINGS, format="shards"))
    assert transcoded == ["walk/broken.mp4"]
    for path in shards_dir.glob("shard*"):
        assert (out / path.name).read_bytes() == path.read_bytes()
