"""The processes that a process has started, and those that they have."""

import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Their numbers, from the oldest on."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and (parent := _parent_pid(int(place.name))):
            children.setdefault(parent, []).append(int(place.name))
    result = sorted(children.get(pid, []))
    return result + [grandchild for child in result for grandchild in descendants(child)]


def decoder_processes(pid: int) -> list[int]:
    """Those that a fork server among them has forked."""
    return [other for child in descendants(pid) if "forkserver" in _command_line(child) for other in descendants(child)]


def is_alive(pid: int) -> bool:
    return _parent_pid(pid) is not None


def alive_after(seconds: float, pids: list[int]) -> list[int]:
    """Which of them are still there after so long; sooner if none is."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _parent_pid(pid: int) -> int | None:
    """None where it has ended."""
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
