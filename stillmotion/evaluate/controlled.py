"""`stillmotion controlled evaluate`: what encoders know of appearance and of motion (BOD-VCL, Tables 1 and 2).

Each encoder is probed on the plain videos, on their static version (one frame repeated) and on their dynamic version
(noise that moves as they do). A probe on single frames of the dynamic version tells whether appearance is left in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from stillmotion.data.halves import Halves, Parted
from stillmotion.data.paths import TARGET
from stillmotion.data.reading import Reading
from stillmotion.data.subset import Joined, Stilled
from stillmotion.distributed import first_within, gather_objects, on_first, rank, world
from stillmotion.encoders import Encoder, Kind, Progress, read_text
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.bootstrap import interval
from stillmotion.evaluate.cache import cached_features
from stillmotion.evaluate.linear import linear_ranks
from stillmotion.evaluate.options import Comparing
from stillmotion.evaluate.outputs import read_by, spare_folder
from stillmotion.evaluate.probe import check_one_fold
from stillmotion.files import locked, write_json

RESULTS = "results.json"
SETS = ("plain", "static", "dynamic")
PIXELS = "pixels"
_GRID = 8  # cells a side, of whose pixels mean and spread are taken


@dataclass(frozen=True)
class _Options:
    """What all probes share, and the seed of their held-out part and of resampling."""

    clips: int
    kinds: tuple[Kind, ...]
    level: float
    resamples: int
    seed: int


@dataclass(frozen=True)
class Asked:
    """A probe's answers: for each test video, the rank of its class; and which videos they were."""

    ranks: np.ndarray
    videos: np.ndarray
    regularisation: float | None


def evaluate_controlled(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, Halves],
    out: str | Path,
    comparing: Comparing | None = None,
    *,
    reading: Reading | None = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Probe several encoders on the versions of one data set and write `results.json` into the folder `out`.

    encoders: by what tables call them.
    versions: "plain", the videos as they are, and "static" and "dynamic", which `controlled make` writes; at least one.
    out: features are kept in it, so that the same command again only goes on. say: told each line of the table.
    Ranks share the videos; the first asks, says and writes.
    """
    how = comparing or Comparing()
    check_asked(encoders, versions)
    seed = next(iter(versions.values())).seed
    options = _Options(how.clips, how.by, how.level, how.resamples, seed)
    parted = {name: versions[name].open() for name in SETS if name in versions}
    for name, videos in parted.items():
        spare_folder(out, read_by(versions[name], videos=videos.videos, encoders=encoders.values()))
    with first_within(lambda: locked(out)):
        return _evaluate(encoders, versions, parted, Path(out), options, reading, say, progress)


def _evaluate(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, Halves],
    parted: Mapping[str, Parted],
    folder: Path,
    options: _Options,
    reading: Reading | None,
    say: Callable[[str], None],
    progress: Progress | None,
) -> dict[str, Any]:
    steps = _Steps(progress, len(encoders) * (sum(_size(p) for p in parted.values()) + _size(parted.get("dynamic"))))

    def ask(encoder: Encoder, videos: Parted, options: _Options) -> tuple[dict[Kind, Asked], dict[str, str]]:
        """The answers of an encoder's probes by kind of feature, and the videos that could not be read."""
        found = cached_features(
            encoder,
            videos.videos,
            clips=options.clips,
            average=False,
            cache=folder / "features",
            reading=reading,
            progress=steps,
        ).features
        steps.past(len(videos.videos))

        def probes() -> dict[Kind, Asked]:
            vectors = {kind: found.vector(kind, average=False) for kind in options.kinds}
            return {kind: _probe(x, found.index, videos, options.seed) for kind, x in vectors.items()}

        return on_first(probes), dict(found.broken)

    asked: dict[str, dict[str, dict[Kind, Asked]]] = {name: {} for name in encoders}
    single: dict[str, Asked] = {}
    broken: dict[str, str] = {}
    if "dynamic" in parted:
        single[PIXELS] = _ask_pixels(parted["dynamic"], options)
    for name, encoder in encoders.items():
        for version, videos in parted.items():
            asked[name][version], failed = ask(encoder, videos, options)
            broken |= failed
        if "dynamic" in parted:
            stilled = replace(parted["dynamic"], videos=Joined([Stilled(parted["dynamic"].videos)]))
            single[name] = ask(encoder, stilled, replace(options, clips=1, kinds=("whole",)))[0]["whole"]
        cells = [f"{version} {_shares(found[options.kinds[0]])[0]:.3f}" for version, found in asked[name].items()]
        if rank() == 0:
            say(f"{name}: top-1 " + ", ".join(cells))

    about = {version: _about(versions[version].path, videos) for version, videos in parted.items()}
    results = {
        "encoders": {name: encoder.origin.text for name, encoder in encoders.items()},
        "sets": about,
        "accuracy": {
            name: {v: {k: _summary(a, options) for k, a in kinds.items()} for v, kinds in found.items()}
            for name, found in asked.items()
        },
        "difference": _differences(asked, options),
        "single_frame": {
            name: _summary(answers, options) | _chance(answers, about["dynamic"], options)
            for name, answers in single.items()
        },
        "settings": asdict(options) | {"kinds": list(options.kinds)},
        "broken": broken,
    }
    on_first(lambda: write_json(folder / RESULTS, results))
    return results


def named_encoders(texts: Sequence[str]) -> dict[str, str]:
    """The texts of encoders by the names they go by in tables; each is checked to be one.

    texts: each with a name in front if wanted, as in "I3D=i3d:weights.safetensors".
    """
    named: dict[str, str] = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        if not sign or any(mark in name for mark in "/@:") or Path(text).exists():
            name, rest = "", text
        found = read_text(rest)
        name = name or Path(found.path).name + (f" ({found.behind})" if found.options else "")
        if name in named:
            name = rest
        if name in named:
            raise StillmotionError(f"{name} is given twice; an encoder is evaluated once")
        named[name] = rest
    return named


def check_asked(encoders: Mapping[str, Encoder], versions: Mapping[str, Halves]) -> None:
    """Raises where nothing can be compared."""
    if not encoders:
        raise StillmotionError("no encoder to evaluate; give one or more run folders, recipes or models")
    if PIXELS in encoders:
        raise StillmotionError(f"no encoder may be called {PIXELS!r}, which stands for none; give it another name")
    if not versions:
        raise StillmotionError("no videos to evaluate on; give --data, --static or --dynamic")
    for name, halves in versions.items():
        if name not in SETS:
            raise StillmotionError(f"there is no version {name!r}; choose of {', '.join(SETS)}")
        check_one_fold(halves)


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


def _ask_pixels(parted: Parted, options: _Options) -> Asked:
    """The answers of a probe that has no network: colours and contrasts of the middle frame, cell by cell."""
    own, reason = {}, "there is none"
    for i in range(rank(), len(parted.videos), world()):
        try:
            video = parted.videos.video(i)
            frame = video.frames([len(video) // 2])[0].astype(np.float32) / 255
        except VideoError as error:
            reason = str(error)
            continue  # named where the encoders meet it
        mean, square = (cv2.resize(x, (_GRID, _GRID), interpolation=cv2.INTER_AREA) for x in (frame, frame**2))
        own[i] = np.concatenate([mean.ravel(), np.sqrt(np.maximum(square - mean**2, 0)).ravel()])
    rows = {i: row for some in gather_objects(own) for i, row in some.items()}
    if not rows:
        raise VideoError(f"none of the {len(parted.videos)} dynamic videos can be read; the last: {reason}")
    numbers = sorted(rows)
    x = np.stack([rows[i] for i in numbers])[:, None]
    return on_first(partial(_probe, x, np.array(numbers), parted, options.seed))


def _probe(x: np.ndarray, index: np.ndarray, parted: Parted, seed: int) -> Asked:
    """Logistic regression on features (n, V, D) of the videos with these numbers, by the set's first fold."""
    y = parted.videos.labels[TARGET][index]
    train, test = (np.flatnonzero(np.isin(index, half)) for half in parted.folds[0])
    ranks, regularisation = linear_ranks(x[train], y[train], x[test], y[test], seed=seed)
    return Asked(ranks, index[test], regularisation)


def _shares(answers: Asked) -> tuple[float, float]:
    top1, top5 = (float((answers.ranks < k).mean()) for k in (1, 5))
    return top1, top5


def _summary(answers: Asked, options: _Options) -> dict[str, Any]:
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


def _differences(asked: Mapping[str, Mapping[str, Mapping[Kind, Asked]]], options: _Options) -> dict[str, Any]:
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
        "data": path,
        "split": parted.how,
        "train_videos": len(train),
        "test_videos": len(test),
        "classes": len(values),
        "chance": 1 / len(values),
        "majority": float((test == values[counts.argmax()]).mean()),
    }


def _chance(answers: Asked, about: Mapping[str, Any], options: _Options) -> dict[str, Any]:
    """Whether an accuracy may be that of guessing, which reaches the commonest class's share."""
    guess = max(about["chance"], about["majority"])
    low = interval(answers.ranks < 1, level=options.level, resamples=options.resamples, seed=options.seed).low
    return {"guess": guess, "at_chance": bool(low <= guess)}
