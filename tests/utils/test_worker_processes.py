"""Worker processes end with the process that started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.process_tree import alive_after, decoder_processes

PARENT = """
import time
from stillmotion.utils.worker_processes import Worker
workers = [Worker(time.sleep) for _ in range(2)]
for worker in workers:
    worker.submit(0)
    worker.receive()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is of Linux")
def test_a_stopped_worker_is_killed_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        workers = decoder_processes(parent.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGSTOP)
        parent.kill()
    alive = alive_after(10.0, workers)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert alive == []


def test_a_long_temporary_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    script = "from stillmotion.utils.worker_processes import Worker\nWorker(abs)"
    process = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True
    )
    assert f"the path of the temporary folder {folder} is too long" in process.stderr
