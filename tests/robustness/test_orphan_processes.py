"""When a command is killed, all processes that it started end within five seconds without a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command, wait_for_steps
from support.process_tree import alive_after, decoder_processes, descendants, is_alive

pytestmark = pytest.mark.slow

_SOON = 5.0
_SMALL = (
    "--data.image-size 16 --data.num-frames 6 --optim.batch-size 8 --optim.epochs 4000 --train.num-threads 1 "
    "--num-workers 2"
)


def assert_kill_ends_all(command: Command) -> None:
    children = descendants(command.pid)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    assert alive_after(_SOON, children) == []


def test_kill_9_of_a_run_ends_its_decoders_and_their_server(tmp_path: Path) -> None:
    command = Command("pretrain", "--recipe", "k400-simclr", "--debug", *_SMALL.split(), "--out", str(tmp_path))
    wait_for_steps(command, tmp_path, 2)
    assert len(decoder_processes(command.pid)) == 2
    assert_kill_ends_all(command)


def test_kill_9_of_embed_ends_its_decoders_and_their_server(tmp_path: Path) -> None:
    videos = write_class_folders(tmp_path / "videos", videos_per_class=20, num_frames=40, image_size=64)
    rows = tmp_path / "rows.npz"
    command = Command(
        "embed", "laptop", "--data", str(videos), "--num-clips", "40", "--num-workers", "2", "--out", str(rows)
    )
    while len(decoder_processes(command.pid)) < 2:
        assert command.is_running, command.stderr
        time.sleep(0.01)
    assert_kill_ends_all(command)


# Kill the agent while a rank is still importing modules.
RANK = """
import os, time
import stillmotion.cli.main as cli
cli.dispatch = lambda args: (print(os.getpid(), flush=True), time.sleep(600))
cli.main()
"""
AGENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {RANK!r}], env=os.environ | {{"LOCAL_RANK": "0"}})
"""


def test_kill_9_of_an_agent_ends_the_ranks_that_it_started_however_young_they_are() -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    rank = int(agent.stdout.readline())
    agent.kill()
    assert alive_after(_SOON, [rank]) == []
    agent.communicate()


STUDY = """
import time
from stillmotion.utils.worker_processes import Worker

if __name__ == "__main__":
    worker = Worker(time.sleep, grace_seconds=1.0)
    worker.submit(600)
    print(worker.process.pid, flush=True)
    time.sleep(600)
"""


def test_kill_9_of_a_study_ends_its_workers() -> None:
    study = subprocess.Popen([sys.executable, "-c", STUDY], stdout=subprocess.PIPE, text=True)
    assert study.stdout is not None
    worker = int(study.stdout.readline())
    study.kill()
    study.communicate()
    assert alive_after(60.0, [worker]) == []  # as soon as its imports are done


BEGINNING = """
import sys
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset

if __name__ == "__main__":
    videos = SyntheticDataset(SyntheticConfig(num_videos=8))
    data = TrainClipDataset(videos, 4, 2, 2, build_augmentation("none", size=16))
    try:
        for epoch in range(10**6):
            list(ClipLoader(data, batch_size=2, num_workers=2).iter_epoch(epoch))
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


def test_ctrl_c_while_decoders_start_is_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGINNING)
    run = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(descendants(run.pid)) < 2:  # the resource tracker, and the fork server
        assert is_alive(run.pid)
        time.sleep(0.01)
    children = descendants(run.pid)
    os.killpg(run.pid, signal.SIGINT)  # to every process, as a terminal does
    out, err = run.communicate(timeout=60)
    assert (out, err) == ("stopped\n", "")
    assert alive_after(_SOON, children) == []
