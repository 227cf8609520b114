"""Replaced originals are copied again, and a flipped bit in a copy is detected."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.numbered_videos import write_numbered_video
from support.transcoded import record_transcoded

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.verify import verify_dataset
from stillmotion.data.transcode.manifest import ManifestEntry
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.video import open_video


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    root = tmp_path / "originals"
    for i, name in enumerate("ab"):
        write_numbered_video(root / "run" / f"{name}.mp4", num_frames=5 + i)
    return root


def prepare(originals: Path, format_name: Any = "mp4") -> list[ManifestEntry]:
    config = PrepareConfig(short_side=48, format=format_name)
    return prepare_dataset(VideoFolder(originals), originals.parent / format_name, config)


@pytest.mark.parametrize("format_name", ["mp4", "jpeg"])
def test_a_replaced_original_is_copied_again(originals: Path, format_name: str) -> None:
    prepare(originals, format_name)
    write_numbered_video(originals / "run" / "a.mp4", num_frames=9)
    with record_transcoded() as transcoded:
        entries = prepare(originals, format_name)
    assert transcoded == [entries[0].path]
    assert [entry.num_frames for entry in entries] == [9, 6]
    assert len(open_video(originals.parent / format_name / entries[0].path)) == 9
    (originals / "run" / "a.mp4").write_bytes(b"no video any more")
    assert prepare(originals, format_name)[0].error
    assert not (originals.parent / format_name / entries[0].path).exists()


def test_shards_of_a_replaced_original_are_packed_again(originals: Path) -> None:
    prepare(originals, "shards")
    write_numbered_video(originals / "run" / "a.mp4", num_frames=9)
    assert [entry.num_frames for entry in prepare(originals, "shards")] == [9, 6]


def test_a_moved_or_touched_original_is_not_copied_again(originals: Path) -> None:
    prepare(originals)
    os.utime(originals / "run" / "a.mp4", (1, 1))
    new_dir = originals.rename(originals.parent / "elsewhere")
    with record_transcoded() as transcoded:
        prepare(new_dir)
    assert transcoded == []


@pytest.mark.parametrize("format_name", ["mp4", "jpeg"])
def test_a_flipped_bit_in_a_copy_is_named_and_mended(
    originals: Path, format_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = originals.parent / format_name / prepare(originals, format_name)[0].path
    file = copy / "000002.jpg" if format_name == "jpeg" else copy
    content = file.read_bytes()
    for bit in np.random.default_rng(0).integers(0, 8 * len(content), 3).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        caplog.clear()
        prepare(originals, format_name)
        assert f"{copy}: checksum mismatch with manifest.jsonl" in caplog.text
        assert file.read_bytes() == content


def test_verify_names_a_damaged_copy(originals: Path, tmp_path: Path) -> None:
    entries = prepare(originals)
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 run\n")
    (lists / "trainlist01.txt").write_text("run/a.mp4 1\n")
    (lists / "testlist01.txt").write_text("run/b.mp4\n")
    assert not verify_dataset("ucf101", tmp_path / "mp4", annotations=lists).unreadable
    copy = tmp_path / "mp4" / entries[1].path
    content = bytearray(copy.read_bytes())
    content[-5] ^= 1  # ignored by decoders
    copy.write_bytes(content)
    report = verify_dataset("ucf101", tmp_path / "mp4", annotations=lists)
    assert [(name, "b.mp4: checksum mismatch" in reason) for name, reason in report.unreadable] == [("run/b", True)]
