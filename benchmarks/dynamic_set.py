"""Frames per second of the dynamic set, against a plain loop of OpenCV calls in one process.

    python benchmarks/dynamic_set.py [--data FOLDER] [--flow dis-medium]
    python benchmarks/dynamic_set.py --half [--data FOLDER]    what flow at half the resolution is worth, instead

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
    """A dynamic set the literal way."""
    search = cv2.DISOpticalFlow.create(PRESETS[flow])
    for number, path in enumerate(paths):
        video = cv2.VideoCapture(str(path))
        height, width = (int(video.get(p)) for p in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        rng = np.random.default_rng(number)
        noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32)
        writer = cv2.VideoWriter(
            str(output_dir / f"{number}.mkv"), cv2.VideoWriter.fourcc(*"FFV1"), 25, (width, height)
        )
        before = None
        while True:
            there, frame = video.read()
            if not there:
                break
            grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
            if before is not None:
                place = grid + search.calc(grey, before, None)
                noise = cv2.remap(noise, place, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_WRAP)
            writer.write(noise)
            before = grey
        writer.release()
        video.release()


class StageTimer:
    """CPU time by the name of a stage."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = time.process_time()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - before

    def format_line(self, frames: int) -> str:
        total = sum(self.spent.values())
        shares = (f"{name} {1e3 * t / frames:.2f} ({t / total:.0%})" for name, t in self.spent.items())
        return f"{', '.join(shares)}; {1e3 * total / frames:.2f} in all"


def measure_stages(paths: list[Path], flow: FlowName) -> None:
    """Prints what each stage takes of a frame, a video in memory at a time, in the loop and in `accumulate`."""
    loop, own = StageTimer(), StageTimer()
    count, search = 0, cv2.DISOpticalFlow.create(PRESETS[flow])
    with tempfile.TemporaryDirectory() as out:
        for path in paths:
            with own("decode"):
                frames = list(open_video(path).iter_constant_rate())
            with own("flow"):
                fields = list(load_flow(flow)(frames))
            size = frames[0].shape[:2]
            with own("noise and warp"):
                moved = [frame for frame, _ in warp_noise(iter(fields), size, np.random.default_rng(0))]
            with own("encode"):
                write_mp4(Path(out, "made.mp4"), moved, size=size, fps=25, gop_size=8)
            count += len(frames)
            video = cv2.VideoCapture(str(path))
            with loop("decode"):
                frames = [video.read()[1] for _ in frames]
            with loop("flow"):
                grey = [cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY) for frame in frames]
                fields = [search.calc(after, before, None) for before, after in pairwise(grey)]
            grid = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0])), -1).astype(np.float32)
            with loop("remap"):
                for field in fields:
                    cv2.remap(moved[0], grid + field, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_WRAP)
            writer = cv2.VideoWriter(str(Path(out, "made.mkv")), cv2.VideoWriter.fourcc(*"FFV1"), 25, size[::-1])
            with loop("encode"):
                for frame in moved:
                    writer.write(frame)
                writer.release()
    print(f"CPU time of stages, ms per frame\n  OpenCV loop  {loop.format_line(count)}")
    print(f"  accumulate   {own.format_line(count)}")


def flow_at_half_resolution(flow_search: Any, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Flow that is searched for at half the resolution."""
    size = np.array(before.shape[::-1])
    small = (cv2.resize(grey, tuple((size + 1) // 2), interpolation=cv2.INTER_AREA) for grey in (before, after))
    field = cv2.resize(flow_search.calc(*small, None), tuple(size), interpolation=cv2.INTER_LINEAR)
    return field * (size / ((size + 1) // 2)).astype(np.float32)


def measure_half(paths: list[Path], flow: FlowName, num_frames: int = 40) -> None:
    """Prints what flow at half the resolution is worth: its error, in px, and that of the flow found in moved noise.

    The error is that of frames which are warped by known smooth flow, borders left out; what is found in the noise, by
    the whole flow, is held against the whole flow of the video.
    """
    whole, fast = (cv2.DISOpticalFlow.create(PRESETS[name]) for name in (flow, "dis-fast"))
    ways: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        flow: lambda before, after: whole.calc(before, after, None),
        f"{flow} at half": lambda before, after: flow_at_half_resolution(whole, before, after),
        "dis-fast": lambda before, after: fast.calc(before, after, None),
    }
    error: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[float]] = {name: [] for name in ways}
    took = {name: StageTimer() for name in ways}
    rng = np.random.default_rng(0)
    inner = (slice(8, -8),) * 2
    for path in paths:
        grey = [
            cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
            for frame in islice(open_video(path).iter_constant_rate(), num_frames)
        ]
        height, width = grey[0].shape
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32)
        for before in grey[::8]:
            coarse = rng.normal(0, 2.5, (4, 5, 2)).astype(np.float32)
            back = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
            after = cv2.remap(before, grid - back, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
            known = back
            for _ in range(10):  # from where a pixel comes to where it goes
                known = cv2.remap(back, grid + known, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            for name, way in ways.items():
                with took[name]("flow"):
                    field = way(before, after)
                error[name].append(endpoint_error(field[inner], known[inner]))
        fields = {name: [way(*pair) for pair in pairwise(grey)] for name, way in ways.items()}
        for name in ways:
            noise = warp_noise(iter(fields[name]), (height, width), np.random.default_rng(0))
            seen = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame, _ in noise]
            again = [ways[flow](*pair) for pair in pairwise(seen)]
            found[name] += [endpoint_error(*pair) for pair in zip(again, fields[flow], strict=True)]
    for name, stages in took.items():
        words = f"{np.mean(error[name]):.2f} px off, in the noise {np.mean(found[name]):.2f}"
        print(f"{name:28} {words}; {1e3 * stages.spent['flow'] / len(error[name]):.2f} ms")


def endpoint_error(flow: np.ndarray, other: np.ndarray) -> float:
    return float(np.hypot(*(flow - other).transpose(2, 0, 1)).mean())


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.m[pk][4v]"))


def measure(paths: list[Path], *, flow: FlowName, rounds: int, num_processes: int) -> None:
    """Prints rates, their ratios to the loop's, and bytes per frame."""
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
    clock: dict[str, list[float]] = {name: [] for name in methods}
    busy: dict[str, list[float]] = {name: [] for name in methods}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, method in methods.items():
            with tempfile.TemporaryDirectory() as out:
                started, spent = time.perf_counter(), time.process_time()
                method(Path(out))
                clock[name].append((time.perf_counter() - started) / frames)
                busy[name].append((time.process_time() - spent) / frames)
                sizes[name] = folder_bytes(Path(out))
    print(f"{len(paths)} videos, {frames} frames, {flow}, {rounds} rounds")
    print(f"{'':28} {'CPU time':>22} {'by the clock':>22} {'kB/frame':>9}")
    base = {"clock": statistics.median(clock["OpenCV loop"]), "busy": statistics.median(busy["OpenCV loop"])}
    for name in methods:
        wall, cpu = statistics.median(clock[name]), statistics.median(busy[name])
        # CPU time of other processes is not counted here.
        used = f"{1 / cpu:8.0f} frames/s {base['busy'] / cpu:4.2f}×" if "processes" not in name else ""
        real = f"{1 / wall:8.0f} frames/s {base['clock'] / wall:4.2f}×"
        print(f"{name:28} {used:>22} {real:>22} {sizes[name] / frames / 1e3:9.1f}")


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
            chosen = np.linspace(0, len(data) - 1, min(options.videos, len(data))).astype(int)
            paths = [Path(data.name(i)) for i in sorted(set(chosen.tolist()))]
        if options.half:
            measure_half(paths, options.flow)
            return
        measure(paths, flow=options.flow, rounds=options.rounds, num_processes=options.processes)
        measure_stages(paths, options.flow)


if __name__ == "__main__":
    main()
