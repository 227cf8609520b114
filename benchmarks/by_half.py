"""What networks of real videos are asked, by half: R@1 among other videos, and a linear probe, seed by seed.

Shared by tokens.py, scratch.py and motion.py; it measures nothing by itself.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.clips import read_clips, uniform_clips
from stillmotion.data.halves import Halves, Parted
from stillmotion.data.paths import VideoSet
from stillmotion.evaluate.bootstrap import resampled_means
from stillmotion.evaluate.cache import Library
from stillmotion.evaluate.linear import linear_ranks
from stillmotion.evaluate.retrieve import answers, ask

KINDS = ("whole", "static", "dynamic", "both")
Hits = dict[tuple[str, str, str], np.ndarray]  # by method, how it is read, and kind


def asked_for(description: str | None, *, seeds: list[int]) -> argparse.ArgumentParser:
    """The options that both have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="labelled videos")
    parser.add_argument("--fold", default="all", type=lambda text: text if text == "all" else int(text))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    parser.add_argument("--epochs", type=int, help="in place of the recipes' own")
    parser.add_argument("--probe", action="store_true", help="also a linear probe, on the set's own split")
    return parser


def own_split(data: str, parted: Parted) -> tuple[np.ndarray, np.ndarray]:
    """The numbers in `parted` of the videos of the set's own training and test half."""
    numbers = {parted.videos.name(i): i for i in range(len(parted.videos))}
    own = Halves(data).open()
    train, test = (np.array([numbers[own.videos.name(int(i))] for i in half]) for half in own.folds[0])
    return train, test


def pixels(videos: VideoSet) -> dict[str, np.ndarray]:
    """What raw pixels say of every video, 16 grey frames of 24×24: one vector each, (n, D), by name."""
    small = []
    for i in range(len(videos)):
        video = videos.video(i)
        frames = read_clips(video, uniform_clips(len(video), frames=16, stride=0, clips=1))[0]
        small.append([cv2.resize(cv2.cvtColor(f, cv2.COLOR_RGB2GRAY), (24, 24), interpolation=3) for f in frames])
    grey = np.array(small, np.float32) / 255
    seen = {"mean frame": grey.mean(1), "differences of frames": np.abs(np.diff(grey, axis=1)), "16 frames": grey}
    return {name: x.reshape(len(x), -1) for name, x in seen.items()}


def nearest(x: np.ndarray, y: np.ndarray, folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Whether the nearest training video of each test video is of its class, all folds together."""
    return np.concatenate([answers(x[test], y[test], x[train], y[train]).hits[:, 0] for train, test in folds])


def print_pixels(parted: Parted) -> None:
    """R@1 of raw pixels."""
    for name, x in pixels(parted.videos).items():
        print(f"pixels, {name}: {nearest(x, parted.videos.labels['class'], parted.folds).mean():.3f}", flush=True)


def answered(
    name: str, how: str, library: Library, parted: Parted, *, halves: tuple[np.ndarray, np.ndarray] | None
) -> Hits:
    """R@1 of every video by each kind of embedding, and whether a probe that learns from one half knows the other.

    library: of all videos of `parted`, in its order. halves: what a probe learns from and is asked; None leaves it out.
    """
    found: Hits = {}
    for kind in KINDS:
        found[name, how, kind] = ask(library, parted, kind=kind)["class"].hits[:, 0].astype(float)
        if halves is not None:
            x, y = library.features.vector(kind, average=False), library.labels["class"]
            train, test = halves
            found[name, f"{how}, probe", kind] = (linear_ranks(x[train], y[train], x[test], y[test]).ranks < 1) + 0.0
    return found


def print_table(each: dict[int, Hits], *, only: int | None = None) -> None:
    """Rows of networks, columns of kinds: the mean over seeds, and each seed."""
    seeds = [only] if only is not None else list(each)
    print(f"\nseeds {' '.join(map(str, seeds))}: " + ", ".join(KINDS))
    for name, how in dict.fromkeys(key[:2] for key in each[seeds[0]]):
        values = np.array([[each[s][name, how, kind].mean() for kind in KINDS] for s in seeds])
        means = "  ".join(f"{value:.3f}" for value in values.mean(0))
        by_seed = "  dynamic by seed: " + " ".join(f"{value:.3f}" for value in values[:, 2]) if only is None else ""
        print(f"{name:10} {how:18} {means}{by_seed}", flush=True)


def print_intervals(each: dict[int, Hits], *, less: tuple[str, str, str]) -> None:
    """One embedding less every other, with 95 % of the means of resampled videos."""
    means = {key: np.mean([each[s][key] for s in each], axis=0) for key in next(iter(each.values()))}
    for probe in (False, True):
        ours = (less[0], less[1] + ", probe" * probe, less[2])
        others = {key: values for key, values in means.items() if key[1].endswith("probe") == probe}
        if others:
            print(f"\n{', '.join(ours)}, less:")
        for key, values in others.items():
            gap = means[ours] - values
            low, high = np.quantile(resampled_means(gap[None])[0], [0.025, 0.975])
            print(f"{' '.join(key):36} {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


def finish(each: dict[int, Hits], out: Path, *, less: tuple[str, str, str]) -> None:
    """Print the means and the intervals of `print_intervals`, and write results.json."""
    print_table(each)
    print_intervals(each, less=less)
    seeds = list(each)
    rows = {" / ".join(key): [each[s][key].mean() for s in seeds] for key in each[seeds[0]]}
    (out / "results.json").write_text(json.dumps({"seeds": seeds, "top-1": rows}, indent=1))
