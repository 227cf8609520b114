"""`stillmotion controlled evaluate`: what encoders know of appearance and of motion (BOD-VCL, Tables 1 and 2).

Each encoder is probed on the plain videos, on their static version (one frame repeated) and on their dynamic version
(noise that moves as they do). A probe on single frames of the dynamic version tells whether appearance is left in it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from stillmotion.config import DataConfig
from stillmotion.data.paths import TARGET, VideoSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.bootstrap import interval
from stillmotion.evaluate.cache import cached_features
from stillmotion.evaluate.encoders import read_spec
from stillmotion.evaluate.features import KINDS, Kind, Progress
from stillmotion.evaluate.linear import linear_ranks
from stillmotion.evaluate.split import Parted, part

RESULTS = "results.json"
SETS = ("plain", "static", "dynamic")
PIXELS = "pixels"
_GRID = 8  # cells a side, of whose pixels mean and spread are taken


@dataclass(frozen=True)
class Options:
    """What all probes of an evaluation share.

    clips: evenly spaced, of each video. kinds: of features; the tables take the first.
    level, resamples: of the confidence intervals. seed: of the split, of the probe's held-out part and of resampling.
    """

    clips: int = 4
    kinds: Sequence[Kind] = ("whole",)
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise StillmotionError(f"kinds are {list(self.kinds)}; choose of {', '.join(KINDS)}")


@dataclass(frozen=True)
class Asked:
    """A probe's answers: for each test video, the rank of its class; and which videos they were."""

    ranks: np.ndarray
    videos: np.ndarray
    regularisation: float | None


def evaluate_controlled(
    encoders: Sequence[str],
    *,
    out: str | Path,
    data: str | None = None,
    static: str | None = None,
    dynamic: str | None = None,
    options: Options | None = None,
    kind: str = "auto",
    fold: int | None = None,
    annotations: str | None = None,
    batch: int = 16,
    workers: int = 0,
    device: str = "auto",
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Probe several encoders on the versions of one data set and write `results.json` into the folder `out`.

    encoders: what `load_encoder` takes, each with a name in front if wanted, as in "I3D=i3d:weights.safetensors".
    data, static, dynamic: the videos as they are and the two versions that `controlled make` writes; at least one.
    kind, fold, annotations: as for `part`, of every version. A version without a split is parted by the seed.
    out: features are kept in it, so that the same command again only goes on. say: told each line of the table.
    """
    options = options or Options()
    named = named_encoders(encoders)
    paths = {name: path for name, path in zip(SETS, (data, static, dynamic), strict=True) if path is not None}
    if not paths:
        raise StillmotionError("no videos to evaluate on; give --data, --static or --dynamic")
    parted = {
        name: part(path, DataConfig(), kind=kind, fold=fold, annotations=annotations, seed=options.seed)
        for name, path in paths.items()
    }
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StillmotionError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None
    loading: dict[str, Any] = {"cache": folder / "features", "batch": batch, "workers": workers, "device": device}
    steps = _Steps(progress, len(named) * (sum(_size(p) for p in parted.values()) + _size(parted.get("dynamic"))))

    asked: dict[str, dict[str, dict[Kind, Asked]]] = {name: {} for name in named}
    single: dict[str, Asked] = {}
    broken: dict[str, str] = {}
    if "dynamic" in parted:
        single[PIXELS] = _ask_pixels(parted["dynamic"], options)
    for name, text in named.items():
        for version, videos in parted.items():
            asked[name][version], failed = _ask(text, videos, options, loading, steps)
            broken |= failed
        if "dynamic" in parted:
            one = Options(1, ("whole",), options.level, options.resamples, options.seed)
            stilled = Parted(Stilled(parted["dynamic"].videos), parted["dynamic"].folds, "")  # type: ignore[arg-type]
            single[name] = _ask(text, stilled, one, loading, steps)[0]["whole"]
        cells = [f"{version} {_shares(found[options.kinds[0]])[0]:.3f}" for version, found in asked[name].items()]
        say(f"{name}: top-1 " + ", ".join(cells))

    about = {version: _about(paths[version], videos) for version, videos in parted.items()}
    results = {
        "encoders": named,
        "sets": about,
        "accuracy": {
            name: {v: {k: _summary(a, options) for k, a in kinds.items()} for v, kinds in versions.items()}
            for name, versions in asked.items()
        },
        "difference": _differences(asked, options),
        "single_frame": {
            name: _summary(answers, options) | _chance(answers, about["dynamic"], options)
            for name, answers in single.items()
        },
        "settings": {
            "clips": options.clips,
            "kinds": list(options.kinds),
            "level": options.level,
            "resamples": options.resamples,
            "seed": options.seed,
        },
        "broken": broken,
    }
    partial = folder / f".{RESULTS}.{os.getpid()}"
    partial.write_text(json.dumps(results, indent=1))
    partial.replace(folder / RESULTS)
    return results


def named_encoders(texts: Sequence[str]) -> dict[str, str]:
    """Encoders by the names they go by in tables; each is checked to be one."""
    named: dict[str, str] = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        if not sign or any(mark in name for mark in "/@:") or Path(text).exists():
            name, rest = "", text
        spec = read_spec(rest)
        behind = ",".join(f"{key}={value}" for key, value in spec.options.items())
        name = name or Path(spec.path).name + (f" ({behind})" if behind else "")
        if name in named:
            name = rest
        if name in named:
            raise StillmotionError(f"{name} is given twice; an encoder is evaluated once")
        named[name] = rest
    if not named:
        raise StillmotionError("no encoder to evaluate; give one or more run folders, recipes or models")
    if PIXELS in named:
        raise StillmotionError(f"no encoder may be called {PIXELS!r}, which stands for none; give it another name")
    return named


class Stilled:
    """The videos of a set, of each of which only the middle frame is seen, as often as frames are asked for."""

    def __init__(self, videos: VideoSet) -> None:
        self.videos = videos
        self.labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
        self.classes: Mapping[str, Sequence[str]] = getattr(videos, "classes", {})
        self.config = "middle frame"  # tells cached features of these from those of the videos themselves

    def __len__(self) -> int:
        return len(self.videos)

    def video(self, i: int) -> Video:
        return _OneFrame(self.videos.video(i))

    def name(self, i: int) -> str:
        return self.videos.name(i)


class _OneFrame:
    def __init__(self, video: Video) -> None:
        self.video, self.fps = video, video.fps

    def __len__(self) -> int:
        return len(self.video)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        return np.repeat(self.video.frames([len(self.video) // 2]), len(indices), axis=0)


class _Steps:
    """One count of videos over all encoders and sets."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def __call__(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(self.before + done, self.total)

    def past(self, videos: int) -> None:
        self.before += videos
        self(0, 0)


def _size(parted: Parted | None) -> int:
    return len(parted.videos) if parted is not None else 0


def _ask(
    text: str, parted: Parted, options: Options, loading: Mapping[str, Any], steps: _Steps
) -> tuple[dict[Kind, Asked], dict[str, str]]:
    """The answers of an encoder's probes by kind of feature, and the videos that could not be read."""
    found = cached_features(text, parted.videos, clips=options.clips, average=False, progress=steps, **loading)
    steps.past(len(parted.videos))
    vectors = {kind: found.features.vector(kind, average=False) for kind in options.kinds}
    answers = {kind: _probe(x, found.features.index, parted, options.seed) for kind, x in vectors.items()}
    return answers, dict(found.features.broken)


def _ask_pixels(parted: Parted, options: Options) -> Asked:
    """The answers of a probe that has no network: colours and contrasts of the middle frame, cell by cell."""
    rows, numbers = [], []
    for i in range(len(parted.videos)):
        try:
            video = parted.videos.video(i)
            frame = video.frames([len(video) // 2])[0].astype(np.float32) / 255
        except VideoError:
            continue  # named where the encoders meet it
        mean, square = (cv2.resize(x, (_GRID, _GRID), interpolation=cv2.INTER_AREA) for x in (frame, frame**2))
        rows.append(np.concatenate([mean.ravel(), np.sqrt(np.maximum(square - mean**2, 0)).ravel()]))
        numbers.append(i)
    return _probe(np.stack(rows)[:, None], np.array(numbers), parted, options.seed)


def _probe(x: np.ndarray, index: np.ndarray, parted: Parted, seed: int) -> Asked:
    """Logistic regression on features (n, V, D) of the videos with these numbers, by the set's first fold."""
    y = parted.videos.labels[TARGET][index]
    train, test = (np.flatnonzero(np.isin(index, half)) for half in parted.folds[0])
    ranks, regularisation = linear_ranks(x[train], y[train], x[test], y[test], seed=seed)
    return Asked(ranks, index[test], regularisation)


def _shares(answers: Asked) -> tuple[float, float]:
    top1, top5 = (float((answers.ranks < k).mean()) for k in (1, 5))
    return top1, top5


def _summary(answers: Asked, options: Options) -> dict[str, Any]:
    top1, top5 = _shares(answers)
    bounds = [
        list(interval(answers.ranks < k, level=options.level, resamples=options.resamples, seed=options.seed))
        for k in (1, 5)
    ]
    return {
        "top1": top1,
        "top1_interval": bounds[0],
        "top5": top5,
        "top5_interval": bounds[1],
        "test_videos": len(answers.ranks),
        "regularisation": answers.regularisation,
    }


def _differences(asked: Mapping[str, Mapping[str, Mapping[Kind, Asked]]], options: Options) -> dict[str, Any]:
    """Each encoder's top-1 less the first one's, on the same test videos, with intervals of paired resamples."""
    first, *others = asked
    found: dict[str, Any] = {}
    for name in others:
        found[name] = {}
        for version, kinds in asked[name].items():
            for kind, answers in kinds.items():
                base = asked[first][version][kind]
                if not np.array_equal(base.videos, answers.videos):
                    continue
                gain = (answers.ranks < 1).astype(float) - (base.ranks < 1)
                bounds = interval(gain, level=options.level, resamples=options.resamples, seed=options.seed)
                found[name].setdefault(version, {})[kind] = {"top1": float(gain.mean()), "interval": list(bounds)}
    return found


def _about(path: str, parted: Parted) -> dict[str, Any]:
    train, test = (parted.videos.labels[TARGET][half] for half in parted.folds[0])
    values, counts = np.unique(train, return_counts=True)
    return {
        "data": str(path),
        "split": parted.how,
        "train_videos": len(train),
        "test_videos": len(test),
        "classes": len(values),
        "chance": 1 / len(values),
        "majority": float((test == values[counts.argmax()]).mean()),
    }


def _chance(answers: Asked, about: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Whether an accuracy may be that of guessing, which reaches the commonest class's share."""
    guess = max(about["chance"], about["majority"])
    low = interval(answers.ranks < 1, level=options.level, resamples=options.resamples, seed=options.seed).low
    return {"guess": guess, "at_chance": bool(low <= guess)}
