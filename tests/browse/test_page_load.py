"""A tenth of the load that `support.page_load` puts on the server."""

import tempfile
from pathlib import Path

import pytest
from support.page_load import run_page_load

pytestmark = pytest.mark.slow
_MAX_GROWTH = 150.0  # MiB of the server


def test_requests_and_uploads_leave_no_memory_process_or_file() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path, as sockets need it
        report = run_page_load(Path(folder), num_requests=200, num_uploads=10)
    lines = "\n".join(report.to_lines())
    print(lines)
    assert not [key for key in report.statuses if key[1] >= 500], lines
    assert report.statuses["upload: good video", 200] == 1, lines
    assert report.statuses["upload: slow", 408] == 1, lines
    assert not [key for key in report.statuses if key[0].startswith(("bad token", "other host")) and key[1] == 200]
    assert report.memory[2] - report.memory[1] < _MAX_GROWTH, lines
    assert (report.processes, report.files) == ([], []), lines
    assert report.errors == "stillmotion: stopped\n", lines
