"""Peak memory of torch on the CPU by its profiler: the reference for `FlopMemoryCounter`."""

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch


def peak_memory(fn: Callable[[], object]) -> float:
    """Return the peak number of MiB that torch allocates on the CPU while a function runs.

    It is the counterpart of `torch.cuda.max_memory_allocated`; the resident set also holds what malloc keeps for reuse.

    Args:
        fn: Function to run.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        fn()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        trace = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    events = sorted((e for e in trace if e.get("name") == "[memory]"), key=lambda e: e["ts"])
    return max(itertools.accumulate(e["args"]["Bytes"] for e in events), default=0) / 2**20
