"""Verbs that write copies of videos, on several processes as `torchrun` starts them."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command, several_ranks, two_ranks

pytestmark = pytest.mark.slow

PREPARE = ("prepare", "--short-side", "32")
FORMS = {
    "mp4": PREPARE,
    "jpeg": (*PREPARE, "--format", "jpeg"),
    "shards": (*PREPARE, "--format", "shards"),
    "dynamic": ("static-dynamic", "make", "--variant", "dynamic"),
}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by its place; of the manifest, all but how long each video took."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != ".lock":
            found[str(file.relative_to(folder))] = file.read_bytes()
    lines = [
        json.loads(line) | {"elapsed_seconds": 0, "line_hash": ""} for line in found["manifest.jsonl"].splitlines()
    ]
    return found | {"manifest.jsonl": json.dumps(lines).encode()}


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = write_class_folders(tmp_path / "videos", videos_per_class=4, num_frames=12, image_size=32)
    (folder / "dark" / "broken.mp4").write_bytes(b"no video")
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_two_processes_write_the_folder_of_one_and_answer_once(form: str, videos: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("one", "two")]
    typed = [(*FORMS[form], "--data", str(videos), "--num-processes", "1", "--out", str(out)) for out in outs]
    alone, ranks = Command(*typed[0]), two_ranks(*typed[1])
    for one in (alone, *ranks):
        one.expect_success()
    assert [one.stdout for one in ranks] == [alone.stdout.replace(str(outs[0]), str(outs[1])), ""]
    assert "1 video failed" in alone.stdout
    assert contents(outs[0]) == contents(outs[1])


@pytest.mark.parametrize("form", ["shards", "dynamic"])
def test_two_killed_processes_are_taken_up_by_one_and_by_three(form: str, videos: Path, tmp_path: Path) -> None:
    def typed(out: Path) -> tuple[str, ...]:
        return (*FORMS[form], "--data", str(videos), "--num-processes", "1", "--out", str(out))

    killed, by_one, by_three, whole = (tmp_path / name for name in ("killed", "by_one", "by_three", "whole"))
    alone, ranks = Command(*typed(whole)), two_ranks(*typed(killed))
    deadline = time.monotonic() + 120
    while not list(killed.rglob("1.jsonl")) and all(rank.is_running for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.002)
    for rank in ranks:
        rank.send(signal.SIGKILL)
    for rank in ranks:
        rank.wait()
    for out in (by_one, by_three):
        shutil.copytree(killed, out)
    for one in (alone, Command(*typed(by_one)), *several_ranks(3, *typed(by_three))):
        one.expect_success()
    assert contents(by_one) == contents(by_three) == contents(whole)


def test_what_a_user_can_mend_on_one_process_is_one_line_and_ends_all(videos: Path, tmp_path: Path) -> None:
    out = ("--num-processes", "1", "--out", str(tmp_path / "out"))
    wrong = {
        "broken.mp4": (*PREPARE, "--data", str(videos), "--strict", *out),
        "no such file or folder": (*PREPARE, "--data", str(tmp_path / "none"), *out),
        "would write over": (*PREPARE, "--data", str(videos), "--num-processes", "1", "--out", str(videos)),
    }
    for words, ranks in {words: two_ranks(*typed) for words, typed in wrong.items()}.items():
        assert [rank.wait() for rank in ranks] == [2, 2], [rank.stderr for rank in ranks]
        (said,) = (line for rank in ranks for line in rank.stderr.splitlines())
        assert words in said
