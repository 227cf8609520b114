"""Videos in tar files are those of the files that they were made of."""

import io
import json
import pickle
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import torch
from painted_videos import write_video

from stillmotion.data import pack, shards
from stillmotion.data.augment import CenterCrops, augment
from stillmotion.data.loader import ClipDataset, ClipLoader, EvalDataset, eval_loader
from stillmotion.data.paths import VideoSet
from stillmotion.data.prepare import Prepare, prepare
from stillmotion.data.sets import FolderSet
from stillmotion.data.shards import ShardSet
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError, VideoError

SETTINGS = {"short_side": 48}


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    root = tmp_path / "originals"
    for i in range(7):
        write_video(root / ("run", "walk")[i % 2] / f"{i}.mp4", frames=10 + i, size=(96, 128))
    (root / "walk" / "broken.mp4").write_bytes(b"no video")
    return root


def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three videos in each."""
    whole = pack._parts
    monkeypatch.setattr(pack, "_parts", lambda order, limit: whole(order, 15_000))


@pytest.fixture
def packed(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_shards(monkeypatch)
    prepare(FolderSet(originals), tmp_path / "packed", Prepare(**SETTINGS, form="shards"))
    return tmp_path / "packed"


def clips(videos: VideoSet, *, workers: int = 0) -> list[torch.Tensor]:
    dataset = ClipDataset(videos, 4, 2, 2, augment("slowfast", size=16), seed=3)
    return [batch["clips"] for batch in ClipLoader(dataset, batch=3, workers=workers).epoch(1)]


def test_clips_from_shards_are_those_from_files_bit_for_bit(originals: Path, packed: Path, tmp_path: Path) -> None:
    prepare(FolderSet(originals), tmp_path / "copy", Prepare(**SETTINGS))
    copy, found = (Videos(tmp_path / name).open() for name in ("copy", "packed"))
    assert isinstance(found, ShardSet)
    assert (found.labels["class"] == copy.labels["class"]).all()
    assert found.classes == copy.classes
    assert [Path(found.name(i).rpartition("#")[0]).name for i in range(7)] == [
        Path(copy.name(i)).name for i in range(7)
    ]
    for workers in (0, 2):
        for one, other in zip(clips(copy), clips(found, workers=workers), strict=True):
            assert torch.equal(one, other)
    crop = CenterCrops(16, 16)
    seen = [list(eval_loader(EvalDataset(videos, 4, 2, 2, crop), batch=4)) for videos in (copy, found)]
    assert all(torch.equal(a["clips"], b["clips"]) for a, b in zip(*seen, strict=True))


def test_shards_are_plain_tar_files_of_pairs_and_the_index_says_where_each_lies(packed: Path) -> None:
    index = json.loads((packed / "shards.json").read_text())
    assert sorted(path.name for path in packed.glob("*.tar")) == [shard["name"] for shard in index["shards"]]
    assert len(index["shards"]) > 2
    assert index["classes"] == ["run", "walk"]
    assert not (packed / "copies").exists()
    listed = pa.ipc.open_file(str(packed / "shards.arrow")).read_all().to_pylist()
    assert [sample["number"] for sample in listed] == list(range(7))  # the last one is broken
    keys = []
    for number, shard in enumerate(index["shards"]):
        content = (packed / shard["name"]).read_bytes()
        here = sorted((s for s in listed if s["shard"] == number), key=lambda s: s["offset"])
        with tarfile.open(packed / shard["name"], "r:") as tar:
            assert tar.getnames() == [f"{s['number']:09d}.{kind}" for s in here for kind in ("json", "mp4")]
            for sample in here:
                key = f"{sample['number']:09d}"
                video, about = (tar.extractfile(f"{key}.{kind}") for kind in ("mp4", "json"))
                assert video is not None
                assert about is not None
                assert content[sample["offset"] : sample["offset"] + sample["size"]] == video.read()
                told = json.load(io.BytesIO(about.read()))
                assert (told["class"], told["frames"]) == (sample["path"].split("/")[0], sample["frames"])
                assert sample["row:class"] == told["class"]
                keys.append(key)
    assert len(set(keys)) == 7
    assert keys != sorted(keys)  # dealt by chance


def test_a_second_call_leaves_whole_shards_and_packs_again_what_is_gone(originals: Path, packed: Path) -> None:
    again = lambda **settings: prepare(FolderSet(originals), packed, Prepare(**SETTINGS | settings, form="shards"))  # noqa: E731
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in packed.glob("*.tar")}
    lines = again()
    assert [bool(line.error) for line in lines] == [False] * 7 + [True]
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in packed.glob("*.tar")} == before
    (packed / "shard-000001.tar").unlink()
    again()
    assert {path.name: path.read_bytes() for path in packed.glob("*.tar")} == {n: b for n, (b, _) in before.items()}
    with pytest.raises(StillmotionError, match="choose another folder"):
        again(short_side=32)
    with pytest.raises(StillmotionError, match="choose another folder"):
        prepare(FolderSet(originals), packed, Prepare(**SETTINGS))
    write_video(originals / "run" / "more.mp4", frames=5)
    with pytest.raises(StillmotionError, match="holds shards of 8 other videos"):
        again()


KILLED = """
import sys
from stillmotion.data.prepare import Prepare, prepare
from stillmotion.data.sets import FolderSet

if __name__ == "__main__":
    told = lambda *_: print("one", flush=True)
    prepare(FolderSet(sys.argv[1]), sys.argv[2], Prepare(short_side=48, form="shards"), progress=told)
"""


def test_a_killed_call_goes_on_to_the_same_shards(originals: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(originals), str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGKILL)
    with pytest.raises(StillmotionError, match="no video found"):
        Videos(tmp_path / "killed").open()
    made: list[str] = []
    told = lambda line, *_: made.append(line.path)  # noqa: E731
    prepare(FolderSet(originals), tmp_path / "killed", Prepare(**SETTINGS, form="shards"), progress=told)
    assert 0 < len(made) < 8
    prepare(FolderSet(originals), tmp_path / "whole", Prepare(**SETTINGS, form="shards"))
    for name in ("shard-000000.tar", "shards.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_address_is_read_as_a_folder_is(packed: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in packed.glob("shard*"):
        memory.pipe_file(f"/sets/mine/{path.name}", path.read_bytes())
    there, here = Videos("memory://sets/mine").open(), Videos(packed).open()
    assert there.name(0).startswith("memory://sets/mine/run/0.mp4#")
    for one, other in zip(clips(here), clips(there), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(StillmotionError, match=r"memory://sets/none/shards\.json: no such file"):
        Videos("memory://sets/none").open()
    with pytest.raises(StillmotionError, match="nowhere://x"):
        Videos("nowhere://x").open()
    memory.rm_file("/sets/mine/shard-000001.tar")
    lost = [i for i in range(7) if i in there.shards[1]]  # type: ignore[attr-defined]
    shards._fetched.cache_clear()
    with pytest.raises(VideoError, match=r"shard-000001\.tar, 0000000.. \(.*\.mp4\): no such file"):
        there.video(lost[0]).frames([0])


def test_a_damaged_shard_is_one_line_that_names_it_and_the_key(packed: Path) -> None:
    videos = Videos(packed).open()
    assert isinstance(videos, ShardSet)
    shard = packed / "shard-000000.tar"
    content = bytearray(shard.read_bytes())
    first, last = videos.shards[0][[0, -1]]
    content[1024 + 512 + 50] ^= 255
    shard.write_bytes(content[: len(content) - 12_000])
    shards._fetched.cache_clear()
    with pytest.raises(VideoError, match=r"shard-000000\.tar, \d{9} \(.*\): its bytes are not those that were written"):
        videos.video(int(first))
    with pytest.raises(VideoError, match=r"shard-000000\.tar, \d{9} \(.*\): \d+ of its \d+ bytes are there"):
        videos.video(int(last))
    batch = next(eval_loader(EvalDataset(videos, 4, 2, 1, CenterCrops(16, 16)), batch=7))
    assert {name for name, _ in batch["broken"]} == {videos.name(int(i)) for i in videos.shards[0]}
    (packed / "shards.json").write_text('{"version": 2, "shards": [{"size": 3}]}')
    with pytest.raises(StillmotionError, match="no index of shards"):
        Videos(packed).open()
    (packed / "shards.json").write_text('{"versi')
    with pytest.raises(StillmotionError, match="torn or damaged"):
        Videos(packed).open()


def test_a_damaged_list_is_one_line(packed: Path) -> None:
    file = packed / "shards.arrow"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    with pytest.raises(
        StillmotionError, match=rf"shards\.arrow has {len(content) - 100} bytes, and .* says {len(content)}"
    ):
        Videos(packed).open()
    file.write_bytes(b"x" * len(content))
    with pytest.raises(StillmotionError, match=r"shards\.arrow is torn or damaged"):
        Videos(packed).open()
    file.unlink()
    with pytest.raises(StillmotionError, match=r"shards\.arrow: no such file"):
        Videos(packed).open()


def test_another_process_maps_the_list_instead_of_being_sent_it(packed: Path) -> None:
    videos = Videos(packed).open()
    names = [videos.name(i) for i in range(len(videos))]
    assert videos.labels["class"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    sent = pickle.dumps(videos)
    assert names[3].rpartition("/")[2].partition("#")[0].encode() not in sent
    again = pickle.loads(sent)
    assert [again.name(i) for i in range(len(again))] == names
    assert again.labels["class"].tolist() == videos.labels["class"].tolist()


def test_splits_and_classes_are_kept(tmp_path: Path) -> None:
    root = tmp_path / "originals"
    for name in "abc":
        write_video(root / f"{name}.mp4", frames=5)
    (root / "labels.csv").write_text("path,class,split1\na.mp4,x,train\nb.mp4,y,test\nc.mp4,z,train\n")
    prepare(Videos(root).open(), tmp_path / "packed", Prepare(form="shards"))
    test = Videos(tmp_path / "packed", split="test").open()
    assert (len(test), test.labels["class"].tolist(), test.classes["class"]) == (1, [1], ["x", "y", "z"])
    assert "/b.mp4#" in test.name(0)
    with pytest.raises(StillmotionError, match="no column split2"):
        Videos(tmp_path / "packed", split="test", fold=2).open()


def test_shards_are_prepared_anew_as_files(packed: Path, tmp_path: Path) -> None:
    lines = prepare(Videos(packed).open(), tmp_path / "files", Prepare(short_side=32))
    assert [line.path for line in lines[:2]] == ["run/0.mp4", "run/2.mp4"]
    assert len(Videos(tmp_path / "files").open()) == 7


def test_a_call_stopped_while_it_packs_packs_again_what_is_copied(
    originals: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, add, added = tmp_path / "stopped", pack._add, []

    def stops(*arguments: Any) -> Any:
        added.append(arguments)
        if len(added) == 4:
            raise KeyboardInterrupt
        return add(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(pack, "_add", stops)
        with pytest.raises(KeyboardInterrupt):
            prepare(FolderSet(originals), out, Prepare(**SETTINGS, form="shards"))
    assert not (out / "shards.json").exists()
    made: list[str] = []
    told = lambda line, *_: made.append(line.path)  # noqa: E731
    prepare(FolderSet(originals), out, Prepare(**SETTINGS, form="shards"), progress=told)
    assert made == ["walk/broken.mp4"]
    for path in packed.glob("shard*"):
        assert (out / path.name).read_bytes() == path.read_bytes()
