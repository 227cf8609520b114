"""Copying processes end with their command, and a video whose process dies is reported in one line."""

import os
import signal
import time
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader

pytestmark = pytest.mark.slow

VERBS = {
    "prepare": ("prepare", "--short-side", "24"),
    "static-dynamic": ("static-dynamic", "make", "--variant", "dynamic", "--flow", "dis-fast"),
}


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "videos", videos_per_class=8, num_frames=16)


def start_copying(verb: str, videos: Path, out: Path) -> Command:
    """Start the command on two processes; returns when it is copying."""
    command = Command(*VERBS[verb], "--data", str(videos), "--num-processes", "2", "--out", str(out))
    deadline = time.monotonic() + 60
    while len(list(out.glob("*/*.mp4"))) < 2:
        assert command.is_running, command.stderr
        assert time.monotonic() < deadline, "the command makes no progress"
        time.sleep(0.002)
    return command


def processes_at_work(out: Path) -> list[str]:
    """Return the living processes that have an unfinished file."""
    pids = {file.name[1:].partition("-")[0] for file in out.rglob(".*-*.part*")}
    return [pid for pid in pids if is_alive(pid)]


def is_alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path("/proc", pid, "status").read_text()  # a zombie process
    except OSError:
        return False


def contents(out: Path) -> dict[str, bytes]:
    """Return the copies and labels; asserts that unfinished files were removed."""
    assert not list(out.rglob(".*.part*"))
    files = [file for file in out.rglob("*") if file.suffix in (".mp4", ".csv")]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


@pytest.mark.parametrize("verb", VERBS)
def test_killed_in_the_midst_nobody_lives_on_and_the_same_command_ends_as_if_unbroken(
    verb: str, videos: Path, tmp_path: Path
) -> None:
    out, uninterrupted = tmp_path / "killed", tmp_path / "whole"
    command = start_copying(verb, videos, out)
    workers = processes_at_work(out)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while any(map(is_alive, workers)) or processes_at_work(out):
        assert time.monotonic() < deadline, "a process lives on"
        time.sleep(0.01)
    for output_dir in (out, uninterrupted):
        Command(*VERBS[verb], "--data", str(videos), "--num-processes", "1", "--out", str(output_dir)).expect_success()
    assert contents(out) == contents(uninterrupted)
    assert len(VideoDataConfig(out).open()) == 16


def test_sigterm_ends_it_with_one_line_and_nothing_unfinished(videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    command = start_copying("prepare", videos, out)
    command.send(signal.SIGTERM)
    assert command.wait() in (143, 0)  # 0 if it had just finished
    assert "Traceback" not in command.stderr
    assert not list(out.rglob(".*.part*"))
    lines = prepare_dataset(VideoFolder(videos), out, PrepareConfig(short_side=24))
    assert [len(open_video(out / line.path)) for line in lines] == [16] * 16


class Deadly(PathDataset):
    """A data set that kills the process which opens its second video, as the kernel does when memory is full."""

    def open_video(self, i: int) -> VideoReader:
        if i == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().open_video(i)


def test_a_process_that_dies_costs_its_video_a_line_and_not_the_run(videos: Path, tmp_path: Path) -> None:
    paths = VideoFolder(videos).paths[:5]
    lines = prepare_dataset(Deadly(paths, root=videos), tmp_path / "out", PrepareConfig(short_side=24), num_processes=2)
    assert [bool(line.error) for line in lines] == [False, True, False, False, False]
    assert f"{paths[1]}: Worker process was killed by signal 9" in lines[1].error
    second = prepare_dataset(PathDataset(paths, root=videos), tmp_path / "out", PrepareConfig(short_side=24))
    assert [line.num_frames for line in second] == [16] * 5
    assert second[0] == lines[0]
