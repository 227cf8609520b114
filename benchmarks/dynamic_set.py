"""Frames per second of the dynamic set, against a plain loop of OpenCV calls in one process.

    python benchmarks/dynamic_set.py [--data FOLDER] [--flow dis-medium]
    python benchmarks/dynamic_set.py --half [--data FOLDER]    speed and error of flow at half the resolution, instead

The loop reads a video with cv2.VideoCapture, finds DIS flow on grey frames, samples the last noise frame by cv2.remap
(nearest) and writes FFV1 with cv2.VideoWriter. It does less: its noise repeats itself where the flow expands, motion of
less than half a pixel is lost, and its files are three times as large. The methods take turns; figures are medians over
rounds. CPU time is that of one process; by the clock, all cores count. Last comes the CPU time of each stage by itself.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.transcode.static_dynamic_sets import StaticDynamicSetConfig, make_static_dynamic_set, warp_noise
from stillmotion.data.video import open_video
from stillmotion.data.video.optical_flow import FLOW_NAMES, FlowName, load_flow
from stillmotion.data.video.writer import write_mp4

PRESETS = {
    "dis-ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
    "dis-fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "dis-medium": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
}


def plain_loop(paths: list[Path], output_dir: Path, flow: str) -> None:
    """Write a dynamic set by a loop of OpenCV calls."""
    flow_search = cv2.DISOpticalFlow.create(PRESETS[flow])
    for number, path in enumerate(paths):
        video = cv2.VideoCapture(str(path))
        height, width = (int(video.get(p)) for p in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        rng = np.random.default_rng(number)
        noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32)
        writer = cv2.VideoWriter(
            str(output_dir / f"{number}.mkv"), cv2.VideoWriter.fourcc(*"FFV1"), 25, (width, height)
        )
        previous = None
        while True:
            has_frame, frame = video.read()
            if not has_frame:
                break
            grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
            if previous is not None:
                coordinates = grid + flow_search.calc(grey, previous, None)
                noise = cv2.remap(noise, coordinates, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_WRAP)
            writer.write(noise)
            previous = grey
        writer.release()
        video.release()


class StageTimer:
    """CPU time by the name of a stage."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - start

    def format_line(self, frames: int) -> str:
        total = sum(self.spent.values())
        shares = (f"{name} {1e3 * t / frames:.2f} ({t / total:.0%})" for name, t in self.spent.items())
        return f"{', '.join(shares)}; {1e3 * total / frames:.2f} in all"


def measure_stages(paths: list[Path], flow: FlowName) -> None:
    """Print the CPU time per frame of each stage in the loop and in `accumulate`, one video in memory at a time."""
    loop_timer, library_timer = StageTimer(), StageTimer()
    num_frames, flow_search = 0, cv2.DISOpticalFlow.create(PRESETS[flow])
    with tempfile.TemporaryDirectory() as out:
        for path in paths:
            with library_timer("decode"):
                frames = list(open_video(path).iter_constant_rate())
            with library_timer("flow"):
                fields = list(load_flow(flow)(frames))
            size = frames[0].shape[:2]
            with library_timer("noise and warp"):
                noise_frames = [frame for frame, _ in warp_noise(iter(fields), size, np.random.default_rng(0))]
            with library_timer("encode"):
                write_mp4(Path(out, "made.mp4"), noise_frames, size=size, fps=25, gop_size=8)
            num_frames += len(frames)
            video = cv2.VideoCapture(str(path))
            with loop_timer("decode"):
                frames = [video.read()[1] for _ in frames]
            with loop_timer("flow"):
                grey = [cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY) for frame in frames]
                fields = [flow_search.calc(second, first, None) for first, second in pairwise(grey)]
            grid = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0])), -1).astype(np.float32)
            with loop_timer("remap"):
                for field in fields:
                    cv2.remap(noise_frames[0], grid + field, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_WRAP)
            writer = cv2.VideoWriter(str(Path(out, "made.mkv")), cv2.VideoWriter.fourcc(*"FFV1"), 25, size[::-1])
            with loop_timer("encode"):
                for frame in noise_frames:
                    writer.write(frame)
                writer.release()
    print(f"CPU time of stages, ms per frame\n  OpenCV loop  {loop_timer.format_line(num_frames)}")
    print(f"  accumulate   {library_timer.format_line(num_frames)}")


def flow_at_half_resolution(flow_search: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the flow from `first` to `second`, estimated at half the resolution."""
    size = np.array(first.shape[::-1])
    small = (cv2.resize(grey, tuple((size + 1) // 2), interpolation=cv2.INTER_AREA) for grey in (first, second))
    field = cv2.resize(flow_search.calc(*small, None), tuple(size), interpolation=cv2.INTER_LINEAR)
    return field * (size / ((size + 1) // 2)).astype(np.float32)


def measure_half(paths: list[Path], flow: FlowName, num_frames: int = 40) -> None:
    """Print the speed of flow at half the resolution and its errors in px.

    The first error is that of the flow between frames that are warped by a known smooth flow, without borders. For the
    second, noise is warped by the estimated flow; full-resolution flow of this noise is compared with the video's.
    """
    full, fast = (cv2.DISOpticalFlow.create(PRESETS[name]) for name in (flow, "dis-fast"))
    methods: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        flow: lambda first, second: full.calc(first, second, None),
        f"{flow} at half": lambda first, second: flow_at_half_resolution(full, first, second),
        "dis-fast": lambda first, second: fast.calc(first, second, None),
    }
    error: dict[str, list[float]] = {name: [] for name in methods}
    noise_error: dict[str, list[float]] = {name: [] for name in methods}
    timers = {name: StageTimer() for name in methods}
    rng = np.random.default_rng(0)
    inner = (slice(8, -8),) * 2
    for path in paths:
        grey = [
            cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
            for frame in islice(open_video(path).iter_constant_rate(), num_frames)
        ]
        height, width = grey[0].shape
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32)
        for first in grey[::8]:
            coarse = rng.normal(0, 2.5, (4, 5, 2)).astype(np.float32)
            inverse = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
            second = cv2.remap(first, grid - inverse, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
            true_flow = inverse
            for _ in range(10):  # from where a pixel comes to where it goes
                true_flow = cv2.remap(
                    inverse, grid + true_flow, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
                )
            for name, method in methods.items():
                with timers[name]("flow"):
                    field = method(first, second)
                error[name].append(endpoint_error(field[inner], true_flow[inner]))
        fields = {name: [method(*pair) for pair in pairwise(grey)] for name, method in methods.items()}
        for name in methods:
            noise = warp_noise(iter(fields[name]), (height, width), np.random.default_rng(0))
            noise_frames = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame, _ in noise]
            noise_flow = [methods[flow](*pair) for pair in pairwise(noise_frames)]
            noise_error[name] += [endpoint_error(*pair) for pair in zip(noise_flow, fields[flow], strict=True)]
    for name, stages in timers.items():
        line = f"{np.mean(error[name]):.2f} px off, in the noise {np.mean(noise_error[name]):.2f}"
        print(f"{name:28} {line}; {1e3 * stages.spent['flow'] / len(error[name]):.2f} ms")


def endpoint_error(flow: np.ndarray, reference: np.ndarray) -> float:
    return float(np.hypot(*(flow - reference).transpose(2, 0, 1)).mean())


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.m[pk][4v]"))


def measure(paths: list[Path], *, flow: FlowName, rounds: int, num_processes: int) -> None:
    """Print frames per second, their ratios to the loop, and bytes per frame."""
    frames = sum(len(open_video(path)) for path in paths)
    data = PathDataset(paths, root=Path(os.path.commonpath([path.parent for path in paths])))
    dynamic = StaticDynamicSetConfig("dynamic", flow=flow)
    methods: dict[str, Callable[[Path], object]] = {
        "OpenCV loop": lambda out: plain_loop(paths, out, flow),
        "accumulate": lambda out: make_static_dynamic_set(data, out, dynamic),
        "first-frame": lambda out: make_static_dynamic_set(data, out, replace(dynamic, warp="first-frame")),
        f"accumulate, {num_processes} processes": lambda out: make_static_dynamic_set(
            data, out, dynamic, num_processes=num_processes
        ),
        "static": lambda out: make_static_dynamic_set(data, out, StaticDynamicSetConfig("static")),
    }
    wall_seconds: dict[str, list[float]] = {name: [] for name in methods}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in methods}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, method in methods.items():
            with tempfile.TemporaryDirectory() as out:
                wall_start, cpu_start = time.perf_counter(), time.process_time()
                method(Path(out))
                wall_seconds[name].append((time.perf_counter() - wall_start) / frames)
                cpu_seconds[name].append((time.process_time() - cpu_start) / frames)
                sizes[name] = folder_bytes(Path(out))
    print(f"{len(paths)} videos, {frames} frames, {flow}, {rounds} rounds")
    print(f"{'':28} {'CPU time':>22} {'by the clock':>22} {'kB/frame':>9}")
    wall_base, cpu_base = (statistics.median(seconds["OpenCV loop"]) for seconds in (wall_seconds, cpu_seconds))
    for name in methods:
        wall, cpu = statistics.median(wall_seconds[name]), statistics.median(cpu_seconds[name])
        # CPU time of other processes is not counted here.
        cpu_rate = f"{1 / cpu:8.0f} frames/s {cpu_base / cpu:4.2f}×" if "processes" not in name else ""
        wall_rate = f"{1 / wall:8.0f} frames/s {wall_base / wall:4.2f}×"
        print(f"{name:28} {cpu_rate:>22} {wall_rate:>22} {sizes[name] / frames / 1e3:9.1f}")


def write_videos(output_dir: Path, *, num_videos: int, num_frames: int = 120) -> list[Path]:
    """Texture that slides and a disc that crosses it, at 170×128."""
    paths = []
    for number in range(num_videos):
        rng = np.random.default_rng(number)
        ground = cv2.resize(
            rng.integers(0, 256, (48, 60, 3), dtype=np.uint8), (240, 192), interpolation=cv2.INTER_CUBIC
        )
        path = output_dir / f"{number}.avi"
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25, (170, 128))
        for i in range(num_frames):
            x, y = int(35 + 30 * np.sin(i / 20)), int(32 + 25 * np.cos(i / 15))
            image = ground[y : y + 128, x : x + 170].copy()
            cv2.circle(image, (i * 2 % 170, 64), 20, (255, 40, 40), -1)
            writer.write(image)
        writer.release()
        paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of videos; without it some are made")
    parser.add_argument("--videos", type=int, default=16, help="so many, evenly spread over the folder")
    parser.add_argument("--flow", choices=[name for name in FLOW_NAMES if name in PRESETS], default="dis-medium")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            paths = write_videos(Path(folder), num_videos=options.videos)
        else:
            data = VideoDataConfig(options.data).open()
            indices = np.linspace(0, len(data) - 1, min(options.videos, len(data))).astype(int)
            paths = [Path(data.name(i)) for i in sorted(set(indices.tolist()))]
        if options.half:
            measure_half(paths, options.flow)
            return
        measure(paths, flow=options.flow, rounds=options.rounds, num_processes=options.processes)
        measure_stages(paths, options.flow)


if __name__ == "__main__":
    main()
