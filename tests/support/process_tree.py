"""Descendants of a process."""

import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants, oldest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent_pid(int(entry.name))):
            children.setdefault(parent, []).append(int(entry.name))
    result = sorted(children.get(pid, []))
    return result + [grandchild for child in result for grandchild in descendants(child)]


def decoder_processes(pid: int) -> list[int]:
    """Return the descendants that a fork server has forked."""
    return [other for child in descendants(pid) if "forkserver" in _command_line(child) for other in descendants(child)]


def is_alive(pid: int) -> bool:
    return _parent_pid(pid) is not None


def alive_after(seconds: float, pids: list[int]) -> list[int]:
    """Wait until all processes have ended, at most `seconds`; returns those that are still alive."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _parent_pid(pid: int) -> int | None:
    """Return the parent's process id; None if the process has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None
    return int(parent) if state not in "ZX" else None


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
