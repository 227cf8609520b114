"""Operations that a limited process cannot do; each test limits its own process."""

import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from stillmotion.utils.process_limits import limit_memory, restrict_files
from stillmotion.utils.worker_processes import JobFailed, Worker, kill_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


def try_operations(folder: str) -> dict[str, str]:
    """Return the operations that are possible after file access is restricted to a folder."""
    if not restrict_files([folder]):
        return {}
    attempts = {
        "read inside": lambda: Path(folder, "file").read_text(),
        "read a library": lambda: Path(np.__file__).read_bytes(),
        "discard": lambda: Path("/dev/null").write_text("x"),
        "read outside": lambda: Path(folder).with_name("outside").read_text(),
        "list outside": lambda: list(Path(folder).parent.iterdir()),
        "write inside": lambda: Path(folder, "new").write_text("x"),
        "delete": lambda: Path(folder, "file").unlink(),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9), timeout=5),
    }
    results = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            results[name] = "allowed"
        except OSError as error:
            results[name] = type(error).__name__
    return results


def allocate(num_bytes: int) -> int:
    limit_memory(2**28)
    return len(np.ones(num_bytes, np.uint8))


def test_only_a_folder_and_programs_can_be_read_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("content")
    (tmp_path / "outside").write_text("secret")
    worker: Worker[str] = Worker(try_operations)
    worker.submit(str(tmp_path / "in"))
    results = worker.receive()[1]
    kill_workers([worker])
    if not results:
        pytest.skip("this kernel has no Landlock")
    allowed = {name for name, result in results.items() if result == "allowed"}
    assert allowed == {"read inside", "read a library", "discard"}
    refused = {name for name, result in results.items() if result == "PermissionError"}
    assert {"read outside", "list outside", "write inside", "delete"} <= refused
    assert (tmp_path / "in" / "file").read_text() == "content"


def test_memory_beyond_the_limit_cannot_be_allocated() -> None:
    worker: Worker[int] = Worker(allocate)
    worker.submit(2**26)
    assert worker.receive()[1] == 2**26
    worker.submit(2**29)
    result = worker.receive()[1]
    kill_workers([worker])
    assert isinstance(result, JobFailed)
    assert "MemoryError" in str(result.error)
