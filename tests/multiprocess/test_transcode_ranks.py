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
COMMANDS = {
    "mp4": PREPARE,
    "jpeg": (*PREPARE, "--format", "jpeg"),
    "shards": (*PREPARE, "--format", "shards"),
    "dynamic": ("static-dynamic", "make", "--variant", "dynamic"),
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file by its path; of the manifest, without the time of each video."""
    contents_by_path = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != ".lock":
            contents_by_path[str(file.relative_to(folder))] = file.read_bytes()
    lines = [
        json.loads(line) | {"elapsed_seconds": 0, "line_hash": ""}
        for line in contents_by_path["manifest.jsonl"].splitlines()
    ]
    return contents_by_path | {"manifest.jsonl": json.dumps(lines).encode()}


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "videos", videos_per_class=4, num_frames=12, image_size=32, with_broken=True)


@pytest.mark.parametrize("form", COMMANDS)
def test_two_processes_write_the_folder_of_one_and_answer_once(form: str, videos: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("one", "two")]
    commands = [(*COMMANDS[form], "--data", str(videos), "--num-processes", "1", "--out", str(out)) for out in outs]
    single, ranks = Command(*commands[0]), two_ranks(*commands[1])
    for command in (single, *ranks):
        command.expect_success()
    assert [command.stdout for command in ranks] == [single.stdout.replace(str(outs[0]), str(outs[1])), ""]
    assert "1 video failed" in single.stdout
    assert contents(outs[0]) == contents(outs[1])


@pytest.mark.parametrize("form", ["shards", "dynamic"])
def test_two_killed_processes_are_taken_up_by_one_and_by_three(form: str, videos: Path, tmp_path: Path) -> None:
    def words(out: Path) -> tuple[str, ...]:
        return (*COMMANDS[form], "--data", str(videos), "--num-processes", "1", "--out", str(out))

    killed, by_one, by_three, uninterrupted = (tmp_path / name for name in ("killed", "by_one", "by_three", "whole"))
    single, ranks = Command(*words(uninterrupted)), two_ranks(*words(killed))
    deadline = time.monotonic() + 120
    while not list(killed.rglob("1.jsonl")) and all(rank.is_running for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.002)
    for rank in ranks:
        rank.send(signal.SIGKILL)
    for rank in ranks:
        rank.wait()
    for out in (by_one, by_three):
        shutil.copytree(killed, out)
    for command in (single, Command(*words(by_one)), *several_ranks(3, *words(by_three))):
        command.expect_success()
    assert contents(by_one) == contents(by_three) == contents(uninterrupted)


def test_what_a_user_can_mend_on_one_process_is_one_line_and_ends_all(videos: Path, tmp_path: Path) -> None:
    out = ("--num-processes", "1", "--out", str(tmp_path / "out"))
    commands = {
        "broken.mp4": (*PREPARE, "--data", str(videos), "--strict", *out),
        "no such file or folder": (*PREPARE, "--data", str(tmp_path / "none"), *out),
        "would write over": (*PREPARE, "--data", str(videos), "--num-processes", "1", "--out", str(videos)),
    }
    for message, ranks in {message: two_ranks(*words) for message, words in commands.items()}.items():
        assert [rank.wait() for rank in ranks] == [2, 2], [rank.stderr for rank in ranks]
        (error,) = (line for rank in ranks for line in rank.stderr.splitlines())
        assert message in error
