"""The confounding study, typed as a user would."""

import json
import signal
import time
from pathlib import Path

import pytest
from support.process import Command

SHORT = [
    *("--num-values", "2", "2", "2", "2", "--num-videos", "48", "--batch-size", "4", "--num-probe-videos", "16"),
    *("--num-seeds", "1", "--num-processes", "1", "--num-probes", "1", "--steps", "12"),
]


@pytest.mark.slow
def test_a_stopped_study_continues_and_prints_its_results(tmp_path: Path) -> None:
    words = ("study", "confounding", "--out", str(tmp_path), *SHORT)
    command = Command(*words)
    deadline = time.monotonic() + 100
    while not list((tmp_path / "runs").glob("[!.]*.json")):
        assert command.is_running, command.stderr
        assert time.monotonic() < deadline, "no run comes to its end"
        time.sleep(0.01)
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert command.stderr.splitlines()[-1] == "stillmotion: stopped"
    num_runs = len(list((tmp_path / "runs").glob("[!.]*.json")))
    assert 1 <= num_runs < 6
    assert not (tmp_path / "results.json").exists()

    resumed = Command(*words)
    resumed.expect_success()
    lines = resumed.stdout.splitlines()
    assert resumed.stderr.count("seed 0") == 6 - num_runs
    assert sum(line.startswith(("supported", "not supported")) for line in lines) == 15
    assert lines[-1] == f"written: {tmp_path}/report.html"
    assert len(json.loads((tmp_path / "results.json").read_text())["runs"]) == 6
