"""The table of `make fault-injection`; options say how many of each attack, and 0 leaves it out."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.video.writer import write_mp4
from stillmotion.encoders import load
from stillmotion.training.run_dir import load_any_config
from tools.fault_injection.attacks import (
    ensure_empty_dir,
    fill_disk,
    kill_and_resume,
    mutate_files,
    run_baseline,
    run_on_odd_videos,
    run_twice,
    write_odd_videos,
)
from tools.fault_injection.jobs import Job, RunningCommand, make_jobs


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"kills": 40, "pairs": 20, "disks": 20, "mutations": 2000, "videos": 100}.items():
        asked.add_argument(f"--{name}", type=int, default=usual)
    counts = asked.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stillmotion-fault-injection-") as folder:
        place = Path(folder)
        rows = _run_attacks(place, counts)
    print(f"\n{'attack':<44}{'times':>7}{'failed':>8}{'seconds':>9}")
    for name, (count, bad, seconds) in rows.items():
        print(f"{name:<44}{count:>7}{len(bad):>8}{seconds:>9.0f}")
    for name, (_, bad, _) in rows.items():
        for line in bad:
            print(f"{name}: {line}")
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(any(bad for _, bad, _ in rows.values()))


def _run_attacks(work_dir: Path, counts: argparse.Namespace) -> dict[str, tuple[int, list[str], float]]:
    videos, run = _write_videos(work_dir / "videos"), work_dir / "run"
    first = ("pretrain", "--recipe", "k400-bod-simclr", "--debug", "--optim.epochs", "1", "--out", str(run))
    assert RunningCommand(Job("", first, lambda out: "").command(work_dir), work_dir / "run.log").wait() == 0
    every = make_jobs(videos, run)
    alone = [job for job in every if not job.num_ranks]
    locking = [job for job in alone if job.name != "embed"]
    rows: dict[str, tuple[int, list[str], float]] = {}

    def attack(name: str, count: int, do: Callable[[], list[str]]) -> None:
        if count:
            began = time.monotonic()
            print(f"{name} …", flush=True)
            bad = do()
            rows[name] = (count, bad, time.monotonic() - began)

    if counts.kills or counts.disks:
        print("undisturbed …", flush=True)
        whole = run_baseline(every if counts.kills else alone, ensure_empty_dir(work_dir / "whole"))
    attack(
        "killed −9, gone in 5 s, resumed, equal",
        counts.kills,
        lambda: kill_and_resume(every, whole, ensure_empty_dir(work_dir / "k"), counts.kills),
    )
    attack(
        "two commands on one folder",
        counts.pairs,
        lambda: run_twice(locking, ensure_empty_dir(work_dir / "p"), counts.pairs),
    )
    attack("full disk", counts.disks, lambda: fill_disk(alone, whole, ensure_empty_dir(work_dir / "d"), counts.disks))
    attack(
        "mutations of JSON, manifests and labels",
        counts.mutations,
        lambda: mutate_files(_make_readers(work_dir, run, videos), counts.mutations),
    )
    attack("odd and broken videos", counts.videos, lambda: _run_odd_videos(work_dir, run, videos, counts.videos))
    return rows


def _write_videos(output_dir: Path) -> Path:
    """Drawn videos in two classes."""
    for number in range(24):
        place = output_dir / ("light" if number % 2 else "dark")
        place.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        base = np.kron(rng.integers(0, 255, (6, 6, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
        frames = [np.roll(base, (t * (1 + number % 3), t), (0, 1)) for t in range(20)]
        write_mp4(place / f"{number:02d}.mp4", frames, size=(48, 48), fps=8, gop_size=8, crf=20)
    return output_dir


def _make_readers(work_dir: Path, run_dir: Path, videos_dir: Path) -> dict[Path, Callable[[], object]]:
    copy = work_dir / "copy"
    small = PrepareConfig(short_side=24)
    prepare_dataset(VideoDataConfig(str(videos_dir)).open(), copy, small)

    def reread() -> object:
        return prepare_dataset(VideoDataConfig(str(videos_dir)).open(), copy, small)

    def opened() -> object:
        found = VideoDataConfig(str(copy)).open()
        TrainTestConfig(str(copy)).open()
        return [found.name(i) for i in range(len(found))]

    def loaded() -> object:
        load_any_config(run_dir)
        return load(run_dir)

    return {
        run_dir / "config.json": loaded,
        copy / "labels.csv": opened,
        copy / "manifest.jsonl": reread,
        copy / "prepare.json": reread,
    }


def _run_odd_videos(work_dir: Path, run_dir: Path, videos_dir: Path, count: int) -> list[str]:
    sources = sorted(videos_dir.rglob("*.mp4"))
    odd = work_dir / "odd" / "videos"
    write_odd_videos(odd, sources, count)
    good = work_dir / "odd" / "good"
    good.mkdir()
    for number, source in enumerate(sources[:16]):
        (good / f"{number}.mp4").write_bytes(source.read_bytes())
        (odd / f"good-{number}.mp4").write_bytes(source.read_bytes())
    return run_on_odd_videos(odd, run_dir, ensure_empty_dir(work_dir / "f"))


if __name__ == "__main__":
    main()
