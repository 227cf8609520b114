"""The table of `make torture`; options say how many of each attack, and 0 leaves it out."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stillmotion.config import read_any_config
from stillmotion.data.encode import write_mp4
from stillmotion.data.halves import Halves
from stillmotion.data.prepare import Prepare, prepare
from stillmotion.data.videos import Videos
from stillmotion.encoders import load
from torture.attacks import cleared, fed, full_disks, kills, mutations, odd_videos, pairs, undisturbed
from torture.commands import Job, Started, jobs


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"kills": 40, "pairs": 20, "disks": 20, "mutations": 2000, "videos": 100}.items():
        asked.add_argument(f"--{name}", type=int, default=usual)
    counts = asked.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stillmotion-torture-") as folder:
        place = Path(folder)
        rows = _torture(place, counts)
    print(f"\n{'attack':<44}{'times':>7}{'failed':>8}{'seconds':>9}")
    for name, (count, bad, seconds) in rows.items():
        print(f"{name:<44}{count:>7}{len(bad):>8}{seconds:>9.0f}")
    for name, (_, bad, _) in rows.items():
        for line in bad:
            print(f"{name}: {line}")
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(any(bad for _, bad, _ in rows.values()))


def _torture(place: Path, counts: argparse.Namespace) -> dict[str, tuple[int, list[str], float]]:
    videos, run = _videos(place / "videos"), place / "run"
    first = ("pretrain", "--recipe", "debug-bod-simclr", "--optim.epochs", "1", "--out", str(run))
    assert Started(Job("", first, lambda out: "").command(place), place / "run.log").wait() == 0
    every = jobs(videos, run)
    alone = [job for job in every if not job.ranks]
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
        whole = undisturbed(every if counts.kills else alone, cleared(place / "whole"))
    attack(
        "killed −9, gone in 5 s, resumed, equal",
        counts.kills,
        lambda: kills(every, whole, cleared(place / "k"), counts.kills),
    )
    attack("two commands on one folder", counts.pairs, lambda: pairs(locking, cleared(place / "p"), counts.pairs))
    attack("full disk", counts.disks, lambda: full_disks(alone, whole, cleared(place / "d"), counts.disks))
    attack(
        "mutations of JSON, manifests and labels",
        counts.mutations,
        lambda: mutations(_texts(place, run, videos), counts.mutations),
    )
    attack("odd and broken videos", counts.videos, lambda: _odd(place, run, videos, counts.videos))
    return rows


def _videos(folder: Path) -> Path:
    """Drawn videos in two classes."""
    for number in range(24):
        place = folder / ("light" if number % 2 else "dark")
        place.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        base = np.kron(rng.integers(0, 255, (6, 6, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
        frames = [np.roll(base, (t * (1 + number % 3), t), (0, 1)) for t in range(20)]
        write_mp4(place / f"{number:02d}.mp4", frames, size=(48, 48), fps=8, gop=8, crf=20)
    return folder


def _texts(place: Path, run: Path, videos: Path) -> dict[Path, Callable[[], object]]:
    copy = place / "copy"
    small = Prepare(short_side=24)
    prepare(Videos(str(videos)).open(), copy, small)

    def reread() -> object:
        return prepare(Videos(str(videos)).open(), copy, small)

    def opened() -> object:
        found = Videos(str(copy)).open()
        Halves(str(copy)).open()
        return [found.name(i) for i in range(len(found))]

    def loaded() -> object:
        read_any_config(run)
        return load(run)

    return {
        run / "config.json": loaded,
        copy / "labels.csv": opened,
        copy / "manifest.jsonl": reread,
        copy / "prepare.json": reread,
    }


def _odd(place: Path, run: Path, videos: Path, count: int) -> list[str]:
    sources = sorted(videos.rglob("*.mp4"))
    odd = place / "odd" / "videos"
    odd_videos(odd, sources, count)
    good = place / "odd" / "good"
    good.mkdir()
    for number, source in enumerate(sources[:16]):
        (good / f"{number}.mp4").write_bytes(source.read_bytes())
        (odd / f"good-{number}.mp4").write_bytes(source.read_bytes())
    return fed(odd, run, cleared(place / "f"))


if __name__ == "__main__":
    main()
